package file

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/guest/walk"
)

// A listing holds at most so many entries, and so many bytes of names.
const (
	maxEntries   = 20_000
	maxNameBytes = 1 << 20
)

// List lists the entries of a folder to the given depth (below 1 means 1), by path, links not followed. Truncated tells that there were more.
func (p Place) List(path string, depth int) (entries []*sandboxv1.FileInfo, truncated bool, err error) {
	l := listing{}
	err = p.do("list", path, func(full string) error {
		top, err := walk.Open(full, unix.O_RDONLY|unix.O_DIRECTORY)
		if err != nil {
			return err
		}
		defer unix.Close(top)
		l.top = top
		return l.walk("", max(depth, 1))
	})
	return l.entries, l.truncated, err
}

type listing struct {
	top       int
	entries   []*sandboxv1.FileInfo
	bytes     int
	truncated bool
}

// walk lists the folder of that name below the top, and what is in it.
func (l *listing) walk(prefix string, depth int) error {
	found, err := l.read(prefix)
	if err != nil {
		if prefix != "" {
			return nil // a folder below that cannot be read is listed, without what is in it
		}
		return err
	}
	for _, f := range found {
		if len(l.entries) == maxEntries || l.bytes+len(f.info.GetPath()) > maxNameBytes {
			l.truncated = true
			return nil
		}
		l.entries = append(l.entries, f.info)
		l.bytes += len(f.info.GetPath())
		if f.info.GetType() == sandboxv1.FileType_FILE_TYPE_DIRECTORY && depth > 1 {
			if err := l.walk(f.path, depth-1); err != nil {
				return err
			}
		}
	}
	return nil
}

// found is a file that is listed: what is told of it, and its path below the top.
type found struct {
	info *sandboxv1.FileInfo
	path string
}

// read reads one folder, by name.
func (l *listing) read(prefix string) ([]found, error) {
	fd, err := walk.Below(l.top, cmp.Or(prefix, "."), unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	folder := os.NewFile(uintptr(fd), walk.Name(fd)) // by this name entries are looked at
	defer folder.Close()
	entries, err := folder.ReadDir(-1)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(entries, func(a, b os.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	out := make([]found, 0, len(entries))
	for _, entry := range entries {
		info, err := entry.Info()
		if err != nil {
			continue // gone in between
		}
		path := filepath.Join(prefix, entry.Name())
		out = append(out, found{describe(path, walk.Name(fd)+"/"+entry.Name(), info), path})
	}
	return out, nil
}
