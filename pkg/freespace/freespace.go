// Package freespace reports when a disk is too full to begin something new, so that work in progress has room to end.
package freespace

import (
	"fmt"
	"slices"
	"sync"
	"syscall"
	"time"
)

// The default floor: a share of the disk, and no more than so many bytes. That of its files is the same share always.
const (
	defaultShare = 50 // one part of
	defaultMost  = 1 << 30
	mostFiles    = 10_000
)

// lookEvery is how long a measurement of a disk is valid.
const lookEvery = time.Second

// space is the total and the free space of a disk: bytes, and files (inodes). Disks without a bound of files have zero
// of them, or a negative number free, as CephFS.
type space struct{ free, size, freeFiles, files int64 }

// Floor is the least free space of some folders at which new work may start. Its methods are safe for concurrent use.
type Floor struct {
	least int64
	dirs  []string
	stat  func(dir string) (space, error)

	mu     sync.Mutex
	looked time.Time
	lack   string
}

// New makes a floor for the disks of folders. Least is in bytes; 0 is 2 % of each disk and at most 1 GiB, and a
// negative one is no floor. Every floor of bytes implies a floor of files: 2 % of those that each disk can hold, and at
// most 10,000.
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

// Lack returns the reason why no new work may start, for people; an empty result means that work may start. A nil floor
// always has room, and so has a folder that cannot be measured.
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
		s, err := f.stat(dir)
		if err != nil {
			continue // A write there will report the failure.
		}
		least := f.least
		if least == 0 {
			least = min(s.size/defaultShare, defaultMost)
		}
		if s.free < least {
			return fmt.Sprintf("the disk of %s has %s free; something new begins at %s (min_free_bytes): delete what is old, or make room", dir, bytes(s.free), bytes(least))
		}
		if least := min(s.files/defaultShare, mostFiles); s.freeFiles >= 0 && s.freeFiles < least {
			return fmt.Sprintf("the disk of %s has room for %d more files (inodes); something new begins at %d: delete what is old, or make room", dir, s.freeFiles, least)
		}
	}
	return ""
}

func statfs(dir string) (space, error) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		return space{}, err
	}
	return space{int64(s.Bavail) * s.Bsize, int64(s.Blocks) * s.Bsize, int64(s.Ffree), int64(s.Files)}, nil
}

func bytes(n int64) string {
	if n < 1<<30 {
		return fmt.Sprintf("%.0f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
}
