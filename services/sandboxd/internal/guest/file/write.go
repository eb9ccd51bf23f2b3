package file

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/guest/fault"
)

const defaultMode = 0o644

// Writer collects the new content of a file beside it; Commit puts it in place at once. A Writer that is not committed must be
// dropped by Abort.
type Writer struct {
	place  Place
	path   string
	target string
	temp   string
	file   *os.File
	mode   fs.FileMode
}

// Create begins to replace the file at path, whose parents are made. Mode 0 means that of the file that is there, else 0644.
func (p Place) Create(path string, mode uint32) (*Writer, error) {
	w := &Writer{place: p, path: path, mode: fs.FileMode(mode).Perm()}
	err := p.do("write", path, func(full string) error {
		target, err := follow(full)
		if err != nil {
			return err
		}
		w.target = target
		if err := w.check(); err != nil {
			return err
		}
		folder := filepath.Dir(target)
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return err
		}
		w.temp = filepath.Join(folder, ".evalfleet-"+rand.Text())
		w.file, err = os.OpenFile(w.temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		return err
	})
	if err != nil {
		return nil, err
	}
	return w, nil
}

// check refuses what cannot be replaced by a file, and files that the user may not write.
func (w *Writer) check() error {
	info, err := os.Stat(w.target)
	if errors.Is(err, fs.ErrNotExist) {
		if w.mode == 0 {
			w.mode = defaultMode
		}
		if name := filepath.Base(w.target); name == "." || name == ".." || w.target[len(w.target)-1] == '/' {
			return unix.EISDIR
		}
		return nil
	}
	if err != nil {
		return err
	}
	if err := regular(w.path, info); err != nil {
		return err
	}
	if w.mode == 0 {
		w.mode = info.Mode().Perm()
	}
	return unix.Faccessat(unix.AT_FDCWD, w.target, unix.W_OK, unix.AT_EACCESS)
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
		if err := os.Rename(w.temp, w.target); err != nil {
			return err
		}
		out = describe(w.path, w.target, info)
		return nil
	})
	if err != nil {
		w.Abort()
		return nil, err
	}
	return out, nil
}

// Abort drops what was written.
func (w *Writer) Abort() {
	w.file.Close()
	_ = w.place.User.Do(func() error { return os.Remove(w.temp) })
}
