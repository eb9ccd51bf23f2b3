package e2e_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/pkg/sqlite"
	"github.com/evalfleet/evalfleet/pkg/waittest"
)

// Another process holds the lock of the database while sandboxes are made: the evaluation says that it waits for the
// store, and has the results of a calm day.
func TestTheStoreIsAwayWhileSandboxesAreMade(t *testing.T) {
	want := undisturbed(t)
	t.Parallel()
	h, callLog := countedHome(t, &shipped, single)
	c := h.serve()
	spec := counted(t)
	spec.Sandboxes["default"].Setup = "sleep 1"
	name := c.create(t, spec)
	c.until(t, name, func(e *agentv1.Event) bool { return e.GetSampleAdmitted() != nil })
	release := lock(t, h.database())
	c.untilWatched(t, name, func(r *agentv1.WatchEvalResponse) bool {
		for _, wait := range r.GetProgress().GetProgress().GetWaits() {
			if wait.GetReason() == "store" {
				return true
			}
		}
		return false
	})
	release()
	eval := c.await(t, name)
	assert.Equal(t, want, verdictsOf(t, c, eval))
	checkCounted(t, c, eval, callLog)
}

// lock holds the lock of a database for writers, as another process would, until the returned function is called.
func lock(t *testing.T, path string) (release func()) {
	t.Helper()
	db, err := sqlite.Open(t.Context(), path, sqlite.Options{})
	require.NoError(t, err)
	held, let, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		done <- db.Write(context.WithoutCancel(t.Context()), func(*sqlite.Tx) error {
			close(held)
			<-let
			return nil
		})
	}()
	waittest.For(t, held, "the lock of the database")
	return func() {
		close(let)
		assert.NoError(t, waittest.For(t, done, "the end of the write that held the lock"))
		require.NoError(t, db.Close())
	}
}
