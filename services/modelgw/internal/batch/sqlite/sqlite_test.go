package sqlite_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	store "github.com/evalfleet/evalfleet/pkg/sqlite"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/batch"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/batch/batchtest"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/batch/sqlite"
)

func TestSuite(t *testing.T) {
	t.Parallel()
	batchtest.Run(t, func(t *testing.T) batch.Store {
		db, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "db"), store.Options{})
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, db.Close()) })
		s, err := sqlite.New(t.Context(), db)
		require.NoError(t, err)
		return s
	})
}
