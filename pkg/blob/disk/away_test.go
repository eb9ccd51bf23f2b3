package disk_test

import (
	"fmt"
	"os"
	"syscall"
	"testing"
	"testing/iotest"

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
	for errno, cause := range map[syscall.Errno]string{syscall.ENOSPC: "full", syscall.EDQUOT: "full", syscall.EIO: "io"} {
		_, err := store.Put(t.Context(), "p", iotest.ErrReader(fmt.Errorf("copy: %w", &os.PathError{Op: "write", Path: "temp", Err: errno})), "text/plain")
		told, ok := rpcerr.As(err)
		require.True(t, ok, "%v", err)
		assert.Equal(t, errorsv1.ErrorReason_ERROR_REASON_STORE_UNAVAILABLE, told.Reason)
		assert.Equal(t, cause, told.Metadata["cause"])
	}
}
