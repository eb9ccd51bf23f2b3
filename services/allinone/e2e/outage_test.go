package e2e_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/pkg/sqlite"
	"github.com/evalfleet/evalfleet/pkg/waittest"
)

// Another process has the lock of the database during the creation of sandboxes: the evaluation reports that it waits
// for the store, and has the same results as without the outage.
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
			if wait.GetReason() == agentv1.WaitReason_WAIT_REASON_STORE {
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

// The disk of all data is full during the creation of sandboxes, of files or of bytes, and no threshold stops new work
// before: runs wait, and the evaluation has the same results as without the outage. Samples run one after the other, so
// that some sandboxes are still missing when the disk is full.
func TestTheDiskIsFullWhileSandboxesAreMade(t *testing.T) {
	want := undisturbed(t)
	t.Parallel()
	for name, disk := range map[string]struct {
		options string
		ballast int64
		reasons []agentv1.WaitReason
	}{
		"of files": {"size=128m,nr_inodes=2000", 0, []agentv1.WaitReason{agentv1.WaitReason_WAIT_REASON_QUOTA}},
		"of bytes": {"size=128m", 64 << 10, []agentv1.WaitReason{agentv1.WaitReason_WAIT_REASON_QUOTA, agentv1.WaitReason_WAIT_REASON_STORE}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, err := os.MkdirTemp("", "evalfleet-disk-") //nolint:usetesting // sockets lie in it, whose paths must be short
			require.NoError(t, err)
			t.Cleanup(func() { assert.NoError(t, os.RemoveAll(dir)) })
			if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, disk.options); err != nil {
				t.Skip("SKIP: mounting a small disk is not allowed here: ", err)
			}
			t.Cleanup(func() { assert.NoError(t, syscall.Unmount(dir, syscall.MNT_DETACH)) })
			h, callLog := countedHome(t, &shipped, single, "EVALFLEET_MIN_FREE_BYTES=-1")
			h.dir = filepath.Join(dir, "data")
			h.tokenFile = filepath.Join(h.dir, "token")
			c := h.serve()
			spec := counted(t)
			spec.MaxSamples = new(int32(1))
			name := c.create(t, spec)
			c.until(t, name, func(e *agentv1.Event) bool { return e.GetSampleAdmitted() != nil })
			release := fill(t, filepath.Join(dir, "ballast"), disk.ballast)
			c.untilWatched(t, name, func(r *agentv1.WatchEvalResponse) bool {
				return slices.ContainsFunc(r.GetProgress().GetProgress().GetWaits(), func(w *agentv1.EvalWait) bool { return slices.Contains(disk.reasons, w.GetReason()) })
			})
			release()
			eval := c.await(t, name)
			assert.Equal(t, want, verdictsOf(t, c, eval))
			checkCounted(t, c, eval, callLog)
		})
	}
}

// fill writes files of that size into a new folder until the disk is full.
func fill(t *testing.T, dir string, size int64) (release func()) {
	t.Helper()
	require.NoError(t, os.Mkdir(dir, 0o700))
	for i := 0; ; i++ {
		f, err := os.Create(filepath.Join(dir, strconv.Itoa(i)))
		if err == nil && size > 0 {
			err = syscall.Fallocate(int(f.Fd()), 0, 0, size)
		}
		if f != nil {
			require.NoError(t, f.Close())
		}
		if err != nil {
			require.ErrorIs(t, err, syscall.ENOSPC)
			return func() { require.NoError(t, os.RemoveAll(dir)) }
		}
	}
}

// lock has the lock of a database for writers, as another process would, until the returned function is called.
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
