package file

import (
	"errors"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/evalfleet/evalfleet/services/sandboxd/internal/rmtree"
)

// Remove removes a file, or with recursive a folder and all in it.
func (p Place) Remove(path string, recursive bool) error {
	return p.do("remove", path, func(full string) error {
		e, err := find(strings.TrimRight(full, "/"), folder)
		if errors.Is(err, unix.EISDIR) && recursive {
			return unix.EINVAL // a folder goes by its own name
		}
		if err != nil {
			return err
		}
		defer e.close()
		info, err := e.lstat()
		switch {
		case err != nil:
			return err
		case !info.IsDir():
			return unix.Unlinkat(e.folder, e.name, 0)
		case recursive:
			return rmtree.RemoveAt(e.folder, e.name)
		}
		return unix.EISDIR
	})
}
