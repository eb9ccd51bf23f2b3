package file

import (
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
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
		info, err := os.Stat(full)
		if err != nil {
			return err
		}
		if !info.IsDir() {
			return unix.ENOTDIR
		}
		return l.walk(full, "", max(depth, 1))
	})
	return l.entries, l.truncated, err
}

type listing struct {
	entries   []*sandboxv1.FileInfo
	bytes     int
	truncated bool
}

func (l *listing) walk(folder, prefix string, depth int) error {
	names, err := os.ReadDir(folder)
	if err != nil {
		if prefix != "" {
			return nil // a folder below that cannot be read is listed, without what is in it
		}
		return err
	}
	for _, entry := range names {
		name := filepath.Join(prefix, entry.Name())
		if len(l.entries) == maxEntries || l.bytes+len(name) > maxNameBytes {
			l.truncated = true
			return nil
		}
		info, err := entry.Info()
		if err != nil {
			continue // gone in between
		}
		full := filepath.Join(folder, entry.Name())
		l.entries = append(l.entries, describe(name, full, info))
		l.bytes += len(name)
		if entry.IsDir() && depth > 1 {
			if err := l.walk(full, name, depth-1); err != nil {
				return err
			}
		}
	}
	return nil
}

// Remove removes a file, or with recursive a folder and all in it.
func (p Place) Remove(path string, recursive bool) error {
	return p.do("remove", path, func(full string) error {
		info, err := os.Lstat(full)
		if err != nil {
			return err
		}
		switch {
		case !info.IsDir():
			return os.Remove(full)
		case recursive:
			return os.RemoveAll(full)
		}
		return unix.EISDIR
	})
}
