package dirlock_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/dirlock"
)

// A folder that another user could have prepared is not served.
func TestAFolderOfAnotherIsRefused(t *testing.T) {
	t.Parallel()
	dir := dirlock.Dir{Path: t.TempDir(), Option: "--data-dir"}
	require.NoError(t, os.Chmod(dir.Path, 0o777))
	_, _, err := dir.Claim(t.Context())
	require.ErrorContains(t, err, "chmod o-w")
	require.NoError(t, os.Chmod(dir.Path, 0o755))
	if os.Geteuid() == 0 {
		require.NoError(t, os.Chown(dir.Path, 12345, 12345))
		_, _, err = dir.Claim(t.Context())
		require.ErrorContains(t, err, "belongs to user 12345, and this process runs as user 0")
		require.NoError(t, os.Chown(dir.Path, 0, 0))
	}
	lock, _, err := dir.Claim(t.Context())
	require.NoError(t, err)
	require.NoError(t, lock.Release())
}
