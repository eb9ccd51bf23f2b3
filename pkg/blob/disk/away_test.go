package disk_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/blob/disk"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// TestADiskThatTakesNothingIsAStoreThatIsAway: it passes, and is no fault of the server.
func TestADiskThatTakesNothingIsAStoreThatIsAway(t *testing.T) {
	t.Parallel()
	store, err := disk.Open(disk.Config{Dir: t.TempDir()})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	for errno, cause := range map[syscall.Errno]string{
		syscall.ENOSPC: "full", syscall.EDQUOT: "full", syscall.EIO: "io", syscall.ESTALE: "io", syscall.EMFILE: "io", syscall.ENFILE: "io", syscall.ENOMEM: "memory",
	} {
		_, err := store.Put(t.Context(), "p", iotest.ErrReader(fmt.Errorf("copy: %w", &os.PathError{Op: "write", Path: "temp", Err: errno})), "text/plain")
		told, ok := rpcerr.As(err)
		require.True(t, ok, "%v", err)
		assert.Equal(t, errorsv1.ErrorReason_ERROR_REASON_STORE_UNAVAILABLE, told.Reason)
		assert.Equal(t, cause, told.Metadata["cause"])
	}
}

// Whatever is asked of a folder that cannot be used for now has that answer, and not that of a body which is not there.
func TestAFolderThatCannotBeUsedIsAStoreThatIsAway(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	store, err := disk.Open(disk.Config{Dir: dir})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	ref, err := store.Put(t.Context(), "p", strings.NewReader("body"), "text/plain")
	require.NoError(t, err)
	// A link that leads to itself: what is behind it cannot be reached, and a look at it is no "not there".
	folder := filepath.Join(dir, "p", ref.Hash[:2])
	require.NoError(t, os.Rename(folder, folder+".away"))
	require.NoError(t, os.Symlink(filepath.Base(folder), folder))
	calls := map[string]func() error{
		"get":    func() error { _, _, err := store.Get(t.Context(), "p", ref.Hash, 0, 0); return err },
		"stat":   func() error { _, err := store.Stat(t.Context(), "p", ref.Hash); return err },
		"peek":   func() error { _, err := store.Peek(t.Context(), "p", ref.Hash); return err },
		"delete": func() error { return store.Delete(t.Context(), "p", ref.Hash) },
		"unused": func() error { _, err := store.DeleteUnused(t.Context(), "p", ref.Hash, time.Now()); return err },
		"put":    func() error { _, err := store.Put(t.Context(), "p", strings.NewReader("body"), ""); return err },
	}
	for name, call := range calls {
		err := call()
		assert.True(t, rpcerr.StoreAway(err), "%s: %v", name, err)
	}
	require.NoError(t, os.Remove(folder))
	require.NoError(t, os.Rename(folder+".away", folder))
	for _, name := range []string{"get", "stat", "peek", "put", "unused", "delete"} {
		assert.NoError(t, calls[name](), name)
	}
}
