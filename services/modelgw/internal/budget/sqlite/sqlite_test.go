package sqlite_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	store "github.com/evalfleet/evalfleet/pkg/sqlite"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/budget"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/budget/sqlite"
)

// opened is the store in a file, and the function that closes it.
func opened(t *testing.T, path string) (*sqlite.Store, func()) {
	t.Helper()
	db, err := store.Open(t.Context(), path, store.Options{})
	require.NoError(t, err)
	s, err := sqlite.New(t.Context(), db)
	require.NoError(t, err)
	return s, func() { assert.NoError(t, db.Close()) }
}

func TestWhatIsSavedIsLoaded(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "db")
	s, end := opened(t, path)
	spent := budget.Spent{Scope: "projects/p", Tokens: 7, Cost: 0.1, CostPartial: true}
	change := &budget.Change{Bounds: budget.Bounds{MaxTokens: new(int64(5)), MaxCost: new(0.0)}, Over: budget.Bounds{MaxCost: new(0.25)}}
	require.NoError(t, s.SaveSpent(t.Context(), []budget.Spent{{Scope: "projects/p", Tokens: 1}, {Scope: "projects/q", Tokens: 2}}))
	require.NoError(t, s.SaveChange(t.Context(), "projects/p", change))
	require.NoError(t, s.SaveSpent(t.Context(), []budget.Spent{spent}))
	require.NoError(t, s.SaveChange(t.Context(), "projects/new", &budget.Change{}))
	end()

	s, end = opened(t, path)
	defer end()
	all, err := s.Load(t.Context())
	require.NoError(t, err)
	assert.ElementsMatch(t, []budget.Kept{
		{Spent: spent, Change: change},
		{Spent: budget.Spent{Scope: "projects/q", Tokens: 2}},
		{Spent: budget.Spent{Scope: "projects/new"}, Change: &budget.Change{}},
	}, all)

	require.NoError(t, s.SaveChange(t.Context(), "projects/p", nil))
	all, err = s.Load(t.Context())
	require.NoError(t, err)
	assert.Contains(t, all, budget.Kept{Spent: spent})
}
