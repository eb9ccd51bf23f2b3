package disk_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/blob/disk"
)

// made puts a body into a directory and returns what was made within it.
func made(t *testing.T, dir string) map[string]fs.FileInfo {
	t.Helper()
	s, err := disk.Open(disk.Config{Dir: dir})
	require.NoError(t, err)
	_, err = s.Put(t.Context(), "default", strings.NewReader("a"), "text/plain")
	require.NoError(t, err)
	require.NoError(t, s.Close())
	all := map[string]fs.FileInfo{}
	require.NoError(t, filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		all[path], err = entry.Info()
		return err
	}))
	require.Len(t, all, 5, "%v", all)
	return all
}

func TestWhatIsMadeIsTheGroupsWhereTheDirectoryIs(t *testing.T) {
	t.Parallel()
	for mode, want := range map[fs.FileMode][2]fs.FileMode{
		0o700:                 {0o700, 0o600},
		0o755:                 {0o700, 0o600},
		0o770 | fs.ModeSetgid: {0o770 | fs.ModeSetgid, 0o660},
		0o775:                 {0o770, 0o660},
	} {
		dir := t.TempDir()
		require.NoError(t, os.Chmod(dir, mode))
		for path, info := range made(t, dir) {
			if info.IsDir() {
				assert.Equal(t, want[0], info.Mode()&(fs.ModePerm|fs.ModeSetgid), "%v: %s", mode, path)
			} else {
				assert.Equal(t, want[1], info.Mode().Perm(), "%v: %s", mode, path)
			}
		}
	}
}

func TestWhatRootMakesIsTheDirectorysOwners(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root gives files away")
	}
	dir := t.TempDir()
	require.NoError(t, os.Chown(dir, 4711, 4712))
	for path, info := range made(t, dir) {
		owner, _ := info.Sys().(*syscall.Stat_t)
		assert.Equal(t, [2]uint32{4711, 4712}, [2]uint32{owner.Uid, owner.Gid}, path)
	}
}
