// Package freespace reports when a disk is too full to begin something new, so that work in progress has room to end.
package freespace

import (
	"fmt"
	"slices"
	"sync"
	"syscall"
	"time"
)

// The default floor: a share of the disk, and no more than so many bytes.
const (
	defaultShare = 50 // one part of
	defaultMost  = 1 << 30
)

// lookEvery is how long what was found of a disk is taken for true.
const lookEvery = time.Second

// Floor is the least free space of some folders at which something new begins. Its methods may be called concurrently.
type Floor struct {
	least int64
	dirs  []string
	stat  func(dir string) (free, size int64, err error)

	mu     sync.Mutex
	looked time.Time
	lack   string
}

// New makes a floor for the disks of folders. Least is in bytes; 0 is 2 % of each disk and at most 1 GiB, and a
// negative one is no floor.
func New(least int64, dirs ...string) *Floor {
	return &Floor{least: least, dirs: dirs, stat: statfs}
}

// With returns the same floor for the disks of further folders too. That of a nil floor is nil.
func (f *Floor) With(dirs ...string) *Floor {
	if f == nil {
		return nil
	}
	return &Floor{least: f.least, dirs: append(slices.Clone(f.dirs), dirs...), stat: f.stat}
}

// Lack returns what keeps something new from beginning, for people; empty where there is room. A nil floor always has
// room, and so has a folder that cannot be looked at.
func (f *Floor) Lack() string {
	if f == nil || f.least < 0 {
		return ""
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if now := time.Now(); now.Sub(f.looked) >= lookEvery {
		f.lack, f.looked = f.look(), now
	}
	return f.lack
}

func (f *Floor) look() string {
	for _, dir := range f.dirs {
		free, size, err := f.stat(dir)
		if err != nil {
			continue // What is to be written there will say so.
		}
		least := f.least
		if least == 0 {
			least = min(size/defaultShare, defaultMost)
		}
		if free < least {
			return fmt.Sprintf("the disk of %s has %s free; something new begins at %s (min_free_bytes): delete what is old, or make room", dir, bytes(free), bytes(least))
		}
	}
	return ""
}

func statfs(dir string) (free, size int64, err error) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		return 0, 0, err
	}
	return int64(s.Bavail) * s.Bsize, int64(s.Blocks) * s.Bsize, nil
}

func bytes(n int64) string {
	if n < 1<<30 {
		return fmt.Sprintf("%.0f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
}
