// Package rmtree removes folders of sandboxes, whose tenants may have made them as deep as the disk allows.
package rmtree

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// patience bounds a removal: a process may create files as fast as they are removed. A slow machine takes over a minute
// for some thousand folders within each other.
const patience = 5 * time.Minute

// maxOpen bounds the folders that are open at once. What lies deeper is moved up before it is removed.
const maxOpen = 64

// Remove removes the folder at path with its content, as RemoveAt does. A folder that does not exist is no error.
func Remove(path string) error {
	parent, err := os.Open(filepath.Dir(path))
	if err == nil {
		defer parent.Close()
		err = RemoveAt(int(parent.Fd()), filepath.Base(path))
	}
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("remove %s: %w", path, err)
	}
	return nil
}

// RemoveAt removes the folder of that name in an open one, with all in it, however deep that is. It follows no links.
// What cannot be removed stays, perhaps higher up in the folder, and the first reason is the error; EBUSY, when it
// takes more than five minutes.
func RemoveAt(parent int, name string) error {
	top, err := open(parent, name)
	if err != nil {
		return err
	}
	defer unix.Close(top)
	r := &removal{top: top, until: time.Now().Add(patience)}
	r.empty(top, 1)
	if r.err != nil {
		return r.err
	}
	return unix.Unlinkat(parent, name, unix.AT_REMOVEDIR)
}

// removal is the removal of a folder.
type removal struct {
	top   int
	until time.Time
	err   error // the first one
}

// empty removes what is in an open folder of that depth.
func (r *removal) empty(folder, depth int) {
	for gone := -1; gone != 0; {
		names, err := someNames(folder)
		r.note(err)
		gone = 0
		for _, name := range names {
			if time.Now().After(r.until) {
				r.note(unix.EBUSY)
				return
			}
			err := r.remove(folder, name, depth)
			r.note(err)
			if err == nil {
				gone++
			}
		}
	}
}

// remove removes an entry of an open folder, or moves it up.
func (r *removal) remove(folder int, name string, depth int) error {
	err := unix.Unlinkat(folder, name, 0)
	if errors.Is(err, unix.EISDIR) {
		err = unix.Unlinkat(folder, name, unix.AT_REMOVEDIR)
	}
	if errors.Is(err, unix.ENOTEMPTY) && depth == maxOpen {
		err = unix.Renameat(folder, name, r.top, ".evalfleet-"+rand.Text())
	} else if errors.Is(err, unix.ENOTEMPTY) {
		err = r.removeFull(folder, name, depth)
	}
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}

func (r *removal) removeFull(folder int, name string, depth int) error {
	full, err := open(folder, name)
	if err != nil {
		return err
	}
	defer unix.Close(full)
	r.empty(full, depth+1)
	return unix.Unlinkat(folder, name, unix.AT_REMOVEDIR)
}

func (r *removal) note(err error) {
	if r.err == nil {
		r.err = err
	}
}

func open(folder int, name string) (int, error) {
	return unix.Openat(folder, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
}

// someNames gives names in an open folder, as many as fit; none when it is empty.
func someNames(folder int) ([]string, error) {
	const most = 1024
	fd, err := open(folder, ".") // anew, since what is removed moves the rest
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "folder")
	defer f.Close()
	names, err := f.Readdirnames(most)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return names, err
}
