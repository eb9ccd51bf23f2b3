package proclink_test

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/evalfleet/evalfleet/services/sandboxd/internal/guest/proclink"
)

func later() time.Time { return time.Now().Add(time.Minute) }

func TestLinksIntoProcAreRemoved(t *testing.T) {
	t.Parallel()
	dir, elsewhere := t.TempDir(), t.TempDir()
	require.NoError(t, os.Symlink("/proc/self/cwd", filepath.Join(elsewhere, "way")))
	removed := map[string]string{
		"cwd": "/proc/self/cwd/want.csv", "cmdline": "/proc/self/cmdline", "input": "/dev/stdin", "descriptor": "/dev/fd/255", "thread": "/proc/thread-self/root",
		"far": "/proc/4194304/cwd/want", "a/b/dots": "../.././/../../../../../../../../../proc/self/fd/0", "proc": "/proc", "mounts": "/etc/mtab",
		"folder": "/proc/self/root", "by-folder": "a/../folder/etc/passwd", "by-another": elsewhere + "/way/want.csv", "slashes": "/dev//fd/..//cwd/want.csv", "tail": "/dev/fd//",
		"chain": "cmdline", "a/b/back": "../../chain",
	}
	kept := map[string]string{
		"passwd": "/etc/passwd", "nowhere": "no/such/file", "text": "user@host.4711:1", "loop": "loop", "long": strings.Repeat("x", 300), "up": "..", "a/c/sibling": "../b", "null": "/dev/null", "root": "/",
	}
	for _, links := range []map[string]string{removed, kept} {
		for name, to := range links {
			require.NoError(t, os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755))
			require.NoError(t, os.Symlink(to, filepath.Join(dir, name)))
		}
	}
	require.NoError(t, os.Link(filepath.Join(dir, "cmdline"), filepath.Join(dir, "a", "hard")))
	require.NoError(t, unix.Mkfifo(filepath.Join(dir, "pipe"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "proc.txt"), []byte("/proc/self/cwd"), 0o600))
	listener, err := new(net.ListenConfig).Listen(t.Context(), "unix", filepath.Join(dir, "socket"))
	require.NoError(t, err)
	defer listener.Close()

	require.NoError(t, proclink.Remove(dir, later()))
	for name := range removed {
		_, err := os.Stat(filepath.Join(dir, name))
		require.ErrorIs(t, err, os.ErrNotExist, name)
		if name == "chain" || name == "a/b/back" || name == "by-folder" {
			continue // it led there by another link, and now leads nowhere
		}
		_, err = os.Lstat(filepath.Join(dir, name))
		assert.ErrorIs(t, err, os.ErrNotExist, name)
	}
	_, err = os.Lstat(filepath.Join(dir, "a", "hard"))
	require.ErrorIs(t, err, os.ErrNotExist, "another name of a link")
	for name, to := range kept {
		got, err := os.Readlink(filepath.Join(dir, name))
		require.NoError(t, err, name)
		assert.Equal(t, to, got)
	}
	for _, name := range []string{"pipe", "proc.txt", "socket"} {
		assert.FileExists(t, filepath.Join(dir, name))
	}
	_, err = os.Lstat(filepath.Join(elsewhere, "way"))
	require.NoError(t, err, "links of other folders are not followed")
}

// A check may create missing files, or replace a file by a folder.
func TestALinkThatWillLeadIntoProcIsRemoved(t *testing.T) {
	t.Parallel()
	up := strings.Repeat("../", 20)
	for name, to := range map[string]string{
		"a folder of the check":       ".pytest_cache/../" + up + "proc/self/cwd/want.csv",
		"a folder below it":           ".pytest_cache/v/../../" + up + "proc/self/cwd/want.csv",
		"a file that becomes one":     "file/../" + up + "proc/self/cwd/want.csv",
		"by a link into proc":         "later/../" + up + "dev/stdin",
		"by a path from the root":     "/no/such/folder/../../../proc/self/cwd/want.csv",
		"by another link of its kind": "other/proc/self/cwd",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
			require.NoError(t, os.Symlink("later/../"+up, filepath.Join(dir, "other")))
			require.NoError(t, os.Symlink("later/../file", filepath.Join(dir, "kept")))
			require.NoError(t, os.Symlink(to, filepath.Join(dir, "link")))
			require.NoError(t, proclink.Remove(dir, later()))
			_, err := os.Lstat(filepath.Join(dir, "link"))
			require.ErrorIs(t, err, os.ErrNotExist)
			_, err = os.Lstat(filepath.Join(dir, "kept"))
			require.NoError(t, err)
		})
	}
}

func TestManyLinksAreRemoved(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for i := range 3_000 {
		to := "/proc/self/cwd"
		if i%3 == 0 {
			to = "/etc"
		}
		require.NoError(t, os.Symlink(to, filepath.Join(dir, strconv.Itoa(i))))
	}
	require.NoError(t, proclink.Remove(dir, later()))
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Len(t, left, 1_000)
}

func TestAFolderThatCannotBeLookedThroughIsAnError(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, proclink.Remove(filepath.Join(dir, "none"), later()))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	require.NoError(t, proclink.Remove(filepath.Join(dir, "file"), later()))
	require.ErrorIs(t, proclink.Remove(dir, time.Now().Add(-time.Second)), proclink.ErrTooMany)
	require.NoError(t, os.MkdirAll(filepath.Join(dir, strings.Repeat("d/", 300)), 0o755))
	require.ErrorIs(t, proclink.Remove(dir, later()), proclink.ErrTooDeep)
}

// Chains of many links take minutes to follow: the search ends long before.
func TestLinksThatTakeLongEndTheSearch(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for i := range 200 {
		require.NoError(t, os.Symlink(strings.Repeat("./", 2000)+strconv.Itoa(i+1), filepath.Join(dir, strconv.Itoa(i))))
	}
	began := time.Now()
	require.ErrorIs(t, proclink.Remove(dir, began.Add(10*time.Millisecond)), proclink.ErrTooMany)
	assert.Less(t, time.Since(began), 20*time.Second)
}
