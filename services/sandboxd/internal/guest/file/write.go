package file

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/guest/fault"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/guest/walk"
)

const defaultMode = 0o644

// Writer collects the new content of a file beside it; Commit puts it in place at once. A Writer that is not committed
// must be dropped by Abort.
type Writer struct {
	place  Place
	path   string
	target entry
	temp   entry
	file   *os.File
	mode   fs.FileMode
}

// Create begins to replace the file at path, whose parents are made. Mode 0 means that of the file that is there, else
// 0644.
func (p Place) Create(path string, mode uint32) (*Writer, error) {
	w := &Writer{place: p, path: path, mode: fs.FileMode(mode).Perm(), target: entry{folder: -1}}
	err := p.do("write", path, func(full string) (err error) {
		if w.target, err = target(full); err != nil {
			return err
		}
		if err := w.check(); err != nil {
			return err
		}
		w.temp = entry{w.target.folder, ".evalfleet-" + rand.Text()}
		fd, err := unix.Openat(w.temp.folder, w.temp.name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o600)
		if err != nil {
			return err
		}
		w.file = os.NewFile(uintptr(fd), path)
		return nil
	})
	if err != nil {
		w.target.close()
		return nil, err
	}
	return w, nil
}

// check refuses what cannot be replaced by a file, and files that the user may not write.
func (w *Writer) check() error {
	info, err := w.target.lstat()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if w.mode == 0 {
			w.mode = defaultMode
		}
		return nil
	case err != nil:
		return err
	case info.IsDir():
		return unix.EISDIR
	case !info.Mode().IsRegular():
		return walk.ErrNotRegular
	}
	if w.mode == 0 {
		w.mode = info.Mode().Perm()
	}
	return unix.Faccessat(w.target.folder, w.target.name, unix.W_OK, unix.AT_EACCESS)
}

// Write adds content.
func (w *Writer) Write(p []byte) (int, error) {
	n, err := w.file.Write(p)
	if err != nil {
		return n, fault.File("write", w.path, err)
	}
	return n, nil
}

// Commit puts the content in place and describes the file. On failure the old file is as it was.
func (w *Writer) Commit() (*sandboxv1.FileInfo, error) {
	var out *sandboxv1.FileInfo
	err := w.place.do("write", w.path, func(string) error {
		if err := w.file.Chmod(w.mode); err != nil {
			return err
		}
		info, err := w.file.Stat()
		if err != nil {
			return err
		}
		if err := w.file.Close(); err != nil {
			return err
		}
		if err := unix.Renameat(w.temp.folder, w.temp.name, w.target.folder, w.target.name); err != nil {
			return err
		}
		out = describe(w.path, w.target.path(), info)
		return nil
	})
	if err != nil {
		w.Abort()
		return nil, err
	}
	w.target.close()
	return out, nil
}

// Abort drops what was written.
func (w *Writer) Abort() {
	w.file.Close()
	_ = w.place.User.Do(func() error { return unix.Unlinkat(w.temp.folder, w.temp.name, 0) })
	w.target.close()
}
