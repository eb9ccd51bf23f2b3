package lifecycle_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/evalfleet/evalfleet/services/sandboxd/internal/lifecycle"
)

func TestEveryCellOfTheTableOfMoves(t *testing.T) {
	t.Parallel()
	// Columns: remake, made, fail, lose, delete, removed.
	want := map[lifecycle.State][6]lifecycle.State{
		lifecycle.Creating: {lifecycle.Creating, lifecycle.Ready, lifecycle.Failed, 0, lifecycle.Deleting, 0},
		lifecycle.Ready:    {0, 0, 0, lifecycle.Lost, lifecycle.Deleting, 0},
		lifecycle.Paused:   {0, 0, 0, lifecycle.Lost, lifecycle.Deleting, 0},
		lifecycle.Deleting: {0, 0, 0, 0, 0, lifecycle.Deleted},
		lifecycle.Deleted:  {},
		lifecycle.Lost:     {0, 0, 0, 0, lifecycle.Deleting, 0},
		lifecycle.Failed:   {lifecycle.Creating, 0, 0, 0, lifecycle.Deleting, 0},
	}
	assert.Len(t, want, len(lifecycle.States))
	for _, from := range lifecycle.States {
		assert.NotEmpty(t, from.String())
		for i, action := range lifecycle.Actions {
			got, ok := from.Move(action)
			assert.Equal(t, want[from][i], got, "%s %s", from, action)
			assert.Equal(t, want[from][i] != 0, ok, "%s %s", from, action)
		}
	}
}
