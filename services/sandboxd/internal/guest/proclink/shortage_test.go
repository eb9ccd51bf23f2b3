package proclink_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/guest/proclink"
)

const shortVariable = "EVALFLEET_TEST_SHORT"

// TestALinkThatCannotBeFollowedNowIsAnError removes links in a program that may open more and more files: the link is
// gone if that succeeds. It is a program of its own, since the limit is that of the whole program.
func TestALinkThatCannotBeFollowedNowIsAnError(t *testing.T) { //nolint:paralleltest // see above
	if os.Getenv(shortVariable) == "" {
		self, err := os.Executable()
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), waittest.Bound)
		defer cancel()
		cmd := exec.CommandContext(ctx, self, "-test.run", "^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), shortVariable+"=1")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return
	}
	dir := t.TempDir()
	link := filepath.Join(dir, "link")
	require.NoError(t, os.Symlink("/proc/self/cwd", link))
	require.NoError(t, proclink.Remove(t.TempDir(), time.Now().Add(time.Minute)), "what the runtime opens once is open")
	var before unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &before))
	refused := 0
	for files := uint64(4); ; files++ {
		require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: files, Max: before.Max}))
		err := proclink.Remove(dir, time.Now().Add(time.Minute))
		require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &before))
		_, gone := os.Lstat(link)
		if err == nil {
			require.ErrorIs(t, gone, os.ErrNotExist)
			assert.Greater(t, refused, 1)
			return
		}
		refused++
		require.ErrorIs(t, err, unix.EMFILE)
	}
}
