package freespace

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestFloor(t *testing.T) {
	t.Parallel()
	const gib = 1 << 30
	for name, test := range map[string]struct {
		least int64
		disk  space
		says  string
	}{
		"room on a large disk":     {0, space{free: gib, size: 1000 * gib}, ""},
		"none on a large disk":     {0, space{free: gib - 1, size: 1000 * gib}, "the disk of /d has 1024 MiB free; something new begins at 1.0 GiB"},
		"room on a small disk":     {0, space{free: 2 << 20, size: 64 << 20}, ""},
		"none on a small disk":     {0, space{free: 1 << 20, size: 64 << 20}, "has 1 MiB free"},
		"a floor that was set":     {5 * gib, space{free: 4 * gib, size: 10 * gib}, "begins at 5.0 GiB"},
		"above one that was set":   {5 * gib, space{free: 5 * gib, size: 10 * gib}, ""},
		"without a floor all goes": {-1, space{size: gib, files: 100}, ""},
		"files on a large disk":    {0, space{free: gib, size: gib, freeFiles: 10_000, files: 1 << 24}, ""},
		"no files on a large disk": {0, space{free: gib, size: gib, freeFiles: 9_999, files: 1 << 24}, "the disk of /d has room for 9999 more files (inodes); something new begins at 10000"},
		"no files on a small disk": {5 * gib, space{free: 5 * gib, size: 6 * gib, freeFiles: 3, files: 200}, "room for 3 more files (inodes); something new begins at 4"},
		// CephFS counts its objects as files, of which -1 are free (Linux, fs/ceph/super.c).
		"any number of files": {0, space{free: gib, size: gib, freeFiles: -1, files: 1 << 24}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := New(test.least, "/d")
			f.stat = func(string) (space, error) { return test.disk, nil }
			if test.says == "" {
				assert.Empty(t, f.Lack())
			} else {
				assert.Contains(t, f.Lack(), test.says)
			}
		})
	}
	assert.Empty(t, (*Floor)(nil).Lack())
	assert.Empty(t, New(0, t.TempDir()+"/none").Lack(), "a folder that cannot be looked at has room")
}

func TestAFloorForFurtherFolders(t *testing.T) {
	t.Parallel()
	f := New(10, "/d")
	f.stat = func(dir string) (space, error) {
		if dir == "/engine" {
			return space{size: 100}, nil
		}
		return space{free: 100, size: 100}, nil
	}
	assert.Empty(t, f.Lack())
	assert.Contains(t, f.With("/engine").Lack(), "/engine")
	assert.Empty(t, (*Floor)(nil).With("/engine").Lack())
}

func TestSpaceThatIsBackIsSeen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		free := int64(0)
		f := New(10, "/other", "/d")
		f.stat = func(dir string) (space, error) {
			if dir == "/other" {
				return space{}, errors.New("away")
			}
			return space{free: free, size: 100}, nil
		}
		assert.NotEmpty(t, f.Lack())
		free = 10
		time.Sleep(lookEvery)
		assert.Empty(t, f.Lack())
	})
}
