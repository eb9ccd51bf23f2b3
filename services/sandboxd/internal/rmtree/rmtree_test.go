package rmtree_test

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/evalfleet/evalfleet/services/sandboxd/internal/rmtree"
)

func TestAllIsRemovedAndNoLinkFollowed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	keep := filepath.Join(dir, "keep")
	require.NoError(t, os.WriteFile(keep, nil, 0o600))
	top := filepath.Join(dir, "top")
	for _, folder := range []string{"a/b/c", "wide", "empty"} {
		require.NoError(t, os.MkdirAll(filepath.Join(top, folder), 0o755))
	}
	for i := range 3000 {
		require.NoError(t, os.WriteFile(filepath.Join(top, "wide", strconv.Itoa(i)), nil, 0o600))
	}
	require.NoError(t, os.Symlink(dir, filepath.Join(top, "a", "link")))
	require.NoError(t, unix.Mkfifo(filepath.Join(top, "a", "pipe"), 0o600))
	require.NoError(t, rmtree.Remove(top))
	assert.NoDirExists(t, top)
	assert.FileExists(t, keep)
	assert.NoError(t, rmtree.Remove(top), "it is not there")
}

func TestAFolderThatIsDeeperThanAnyPathIsRemoved(t *testing.T) {
	t.Parallel()
	top := filepath.Join(t.TempDir(), "top")
	deep(t, top, 5_000) // of names of a byte: a path has at most 4,096
	require.NoError(t, rmtree.Remove(top))
	assert.NoDirExists(t, top)
}

func TestAtMostSomeFoldersAreOpenAtOnce(t *testing.T) {
	top := filepath.Join(t.TempDir(), "top")
	deep(t, top, 500)
	var now unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &now))
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 100, Max: now.Max}))
	defer func() { require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &now)) }()
	require.NoError(t, rmtree.Remove(top))
}

// deep creates nested folders.
func deep(t *testing.T, top string, levels int) {
	t.Helper()
	require.NoError(t, os.Mkdir(top, 0o755))
	at, err := unix.Open(top, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	require.NoError(t, err)
	for range levels {
		require.NoError(t, unix.Mkdirat(at, "d", 0o755))
		below, err := unix.Openat(at, "d", unix.O_RDONLY|unix.O_DIRECTORY, 0)
		require.NoError(t, err)
		unix.Close(at)
		at = below
	}
	unix.Close(at)
}
