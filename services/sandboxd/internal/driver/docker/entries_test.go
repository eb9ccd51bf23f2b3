package docker

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/evalfleet/evalfleet/services/sandboxd/internal/driver"
)

func TestEntriesAreCounted(t *testing.T) {
	t.Parallel()
	dir, elsewhere := t.TempDir(), t.TempDir()
	for i := range 600 {
		require.NoError(t, os.WriteFile(filepath.Join(elsewhere, strconv.Itoa(i)), nil, 0o600))
		require.NoError(t, os.WriteFile(filepath.Join(dir, strconv.Itoa(i)), nil, 0o600))
	}
	require.NoError(t, os.Symlink(elsewhere, filepath.Join(dir, "link")))
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "a", "b"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a", "b", "c"), nil, 0o600))
	open := func() int {
		fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		require.NoError(t, err)
		return fd
	}
	n, err := entries(t.Context(), open(), 10_000)
	require.NoError(t, err)
	assert.EqualValues(t, 604, n)
	n, err = entries(t.Context(), open(), 100)
	require.NoError(t, err)
	assert.Greater(t, n, int64(100))
	assert.Less(t, n, int64(604), "what is over the bound is not counted on")

	require.NoError(t, os.MkdirAll(filepath.Join(dir, strings.Repeat("d/", deepestEntry+1)), 0o700))
	_, err = entries(t.Context(), open(), 10_000)
	require.ErrorIs(t, err, errTooDeep)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = entries(ctx, open(), 10_000)
	require.ErrorIs(t, err, context.Canceled)
}

// An engine may have mounts of its own, in which its storage lies. Whoever starts a container sees them.
func TestALayerIsSeenByWhoStartsTheContainer(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("mounts take root")
	}
	dir := t.TempDir()
	starter := exec.Command("sh", "-c", `mount -t tmpfs tmpfs "$1" && mkdir "$1/layer" && touch "$1/layer/a" "$1/layer/b" || exit
		sh -c 'echo $$; read end' <&3`, "sh", dir)
	starter.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	ends, end, err := os.Pipe()
	require.NoError(t, err)
	starter.ExtraFiles = []*os.File{ends}
	out, err := starter.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, starter.Start())
	require.NoError(t, ends.Close())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	child, err := strconv.Atoi(strings.TrimSpace(line))
	require.NoError(t, err)

	require.NoDirExists(t, filepath.Join(dir, "layer"), "it is not seen here")
	fd, err := openSeenBy(child, filepath.Join(dir, "layer"))
	require.NoError(t, err)
	n, err := entries(t.Context(), fd, 100)
	require.NoError(t, err)
	assert.EqualValues(t, 2, n)
	_, err = openSeenBy(child, filepath.Join(dir, "none"))
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NoError(t, end.Close())
	require.Error(t, starter.Wait(), "its input has ended")
	_, err = openSeenBy(child, filepath.Join(dir, "layer"))
	require.ErrorIs(t, err, os.ErrNotExist, "the process has ended")
}

func TestABoxWhoseFilesAreNotCountedSaysSo(t *testing.T) {
	t.Parallel()
	weaker := func(writes disk) string {
		return strings.Join((&Driver{}).report(driver.Spec{}, settings{}, facts{storage: entriesStorage}, writes).Isolation.Weaker, "; ")
	}
	assert.Contains(t, weaker(diskBytesMeasured), "the number of files")
	assert.NotContains(t, weaker(diskBytesMeasured), "removed files")
	assert.NotContains(t, weaker(diskMeasured), "the number of files")
}
