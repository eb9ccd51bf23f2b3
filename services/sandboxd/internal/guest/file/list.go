package file

import (
	"cmp"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/guest/walk"
)

// A listing holds at most so many entries, and so many bytes of names and of what links lead to.
const (
	maxEntries = 20_000
	maxBytes   = 2 << 20
)

// List lists the entries of a folder to the given depth (below 1 means 1), by path, links not followed. Truncated
// reports that there were more.
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
	read      int // entries that are listed, or will be
	bytes     int // of their names and targets
	truncated bool
}

// walk lists the folder of that name below the top, and what is in it.
func (l *listing) walk(prefix string, depth int) error {
	found, err := l.folder(prefix)
	if err != nil {
		if prefix != "" {
			return nil // a folder below that cannot be read is listed, without what is in it
		}
		return err
	}
	for _, f := range found {
		l.entries = append(l.entries, f.info)
		if f.info.GetType() == sandboxv1.FileType_FILE_TYPE_DIRECTORY && depth > 1 && !l.truncated {
			if err := l.walk(f.path, depth-1); err != nil {
				return err
			}
		}
	}
	return nil
}

// found is a listed file: its description and its path relative to the top folder.
type found struct {
	info *sandboxv1.FileInfo
	path string
}

// folder reads one folder, by name, as far as the listing has room.
func (l *listing) folder(prefix string) ([]found, error) {
	fd, err := walk.Below(l.top, cmp.Or(prefix, "."), unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	folder := os.NewFile(uintptr(fd), walk.Name(fd)) // by this name entries are looked at
	defer folder.Close()
	entries, err := folder.ReadDir(maxEntries - l.read + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	slices.SortFunc(entries, func(a, b os.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	var out []found
	for _, entry := range entries {
		info, err := entry.Info()
		if err != nil {
			continue // gone in between
		}
		path := filepath.Join(prefix, entry.Name())
		told := describe(path, walk.Name(fd)+"/"+entry.Name(), info)
		size := len(told.GetPath()) + len(told.GetLinkTarget())
		if l.read == maxEntries || l.bytes+size > maxBytes {
			l.truncated = true
			break
		}
		l.read++
		l.bytes += size
		out = append(out, found{told, path})
	}
	return out, nil
}
