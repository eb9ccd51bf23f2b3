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
		least, free, size int64
		says              string
	}{
		"room on a large disk":     {0, gib, 1000 * gib, ""},
		"none on a large disk":     {0, gib - 1, 1000 * gib, "the disk of /d has 1024 MiB free; something new begins at 1.0 GiB"},
		"room on a small disk":     {0, 2 << 20, 64 << 20, ""},
		"none on a small disk":     {0, 1 << 20, 64 << 20, "has 1 MiB free"},
		"a floor that was set":     {5 * gib, 4 * gib, 10 * gib, "begins at 5.0 GiB"},
		"above one that was set":   {5 * gib, 5 * gib, 10 * gib, ""},
		"without a floor all goes": {-1, 0, gib, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := New(test.least, "/d")
			f.stat = func(string) (int64, int64, error) { return test.free, test.size, nil }
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
	f.stat = func(dir string) (int64, int64, error) {
		if dir == "/engine" {
			return 0, 100, nil
		}
		return 100, 100, nil
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
		f.stat = func(dir string) (int64, int64, error) {
			if dir == "/other" {
				return 0, 0, errors.New("away")
			}
			return free, 100, nil
		}
		assert.NotEmpty(t, f.Lack())
		free = 10
		time.Sleep(lookEvery)
		assert.Empty(t, f.Lack())
	})
}
