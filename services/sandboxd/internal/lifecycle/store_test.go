package lifecycle_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/sqlite"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/lifecycle"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/lifecycle/storetest"
)

func TestSQLite(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T) lifecycle.Store {
		db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "s.db"), sqlite.Options{})
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, db.Close()) })
		store, err := lifecycle.NewStore(t.Context(), db)
		require.NoError(t, err)
		return store
	})
}
