package sqlite

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/evalfleet/evalfleet/pkg/replica"
	"github.com/evalfleet/evalfleet/pkg/replica/replicatest"
	store "github.com/evalfleet/evalfleet/pkg/sqlite"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestTable(t *testing.T) {
	t.Parallel()
	replicatest.Run(t, replicatest.Harness{
		New: func(t *testing.T) replica.Table {
			db, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "replica.db"), store.Options{Readers: 1})
			require.NoError(t, err)
			t.Cleanup(func() { assert.NoError(t, db.Close()) })
			table, err := New(t.Context(), db)
			require.NoError(t, err)
			return table
		},
		Age: func(t *testing.T, table replica.Table, process string, by time.Duration) {
			require.NoError(t, table.(*Table).db.Write(t.Context(), func(tx *store.Tx) error {
				_, err := tx.Exec(`UPDATE replica SET beat = beat - ?2 WHERE process = ?1`, process, by.Milliseconds())
				return err
			}))
		},
	})
}
