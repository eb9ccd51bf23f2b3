// Package guestbinary keeps the guest program where boxes can reach it.
package guestbinary

import (
	"crypto/sha256"
	"debug/elf"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

//go:embed embedded
var embedded embed.FS

// Program is the guest program in a folder, where every box can reach it and an update of the original does not change
// it under running boxes. Everybody may read and start it. It is safe for concurrent use.
type Program struct {
	// Path is where it is once Stage has returned without an error.
	Path string

	mu sync.Mutex
	// copy makes it; nil once it is there.
	copy func() error
}

// Find finds the guest program, of which boxes shall have a copy in a folder.
//
// The original is at path. Where path is empty it is the file guestd beside the running program, else the one within
// it. A file is copied at once, since it may be updated later. What is within the running program stays as it is, and
// is copied with the first use: to read it makes all of it resident, also where no box is ever made.
func Find(path, dir string) (*Program, error) {
	if path == "" {
		beside, err := besideUs()
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return findWithin(embedded, dir)
		case err != nil:
			return nil, fmt.Errorf("find the guest program: %w", err)
		}
		path = beside
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("find the guest program: %w; build it with `make build`, and name it in sandboxd.guest_path (EVALFLEET_SANDBOXD_GUEST_PATH)", err)
	}
	p := &Program{Path: filepath.Join(dir, fmt.Sprintf("guestd.%x.%x", info.Size(), info.ModTime().UnixNano()))}
	if isStaged(p.Path, info.Size()) {
		return p, nil
	}
	program, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read the guest program: %w", err)
	}
	return p, errors.Join(write(p.Path, program), program.Close())
}

// Stage makes the copy, if none was made yet.
func (p *Program) Stage() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.copy == nil {
		return nil
	}
	err := p.copy()
	if err == nil {
		p.copy = nil
	}
	return err
}

// besideUs is the guest program in the folder of the running program.
func besideUs() (string, error) {
	running, err := os.Executable()
	if err != nil {
		return "", err
	}
	path := filepath.Join(filepath.Dir(running), "guestd")
	_, err = os.Stat(path)
	return path, err
}

// findWithin finds the program in files that are within the running program.
func findWithin(files fs.FS, dir string) (*Program, error) {
	const name = "embedded/guestd"
	program, err := files.Open(name)
	if err != nil {
		return nil, errors.New("this program was built without the guest program, and none is beside it; build with `make build`, " +
			"or name one in sandboxd.guest_path (EVALFLEET_SANDBOXD_GUEST_PATH)")
	}
	defer program.Close()
	info, err := program.Stat()
	if err != nil {
		return nil, err
	}
	id, err := buildID(program.(io.ReaderAt)) // Files that are embedded are.
	if err != nil {
		return nil, fmt.Errorf("the guest program within this program: %w", err)
	}
	p := &Program{Path: filepath.Join(dir, fmt.Sprintf("guestd.%x", sha256.Sum256(id)))}
	if !isStaged(p.Path, info.Size()) {
		p.copy = func() error {
			program, err := files.Open(name)
			if err != nil {
				return err
			}
			return errors.Join(write(p.Path, program), program.Close())
		}
	}
	return p, nil
}

// buildID is what the linker noted in a program of Go, another one for each content (`go tool buildid`). It is found
// without reading the rest.
func buildID(program io.ReaderAt) ([]byte, error) {
	file, err := elf.NewFile(program)
	if err != nil {
		return nil, err
	}
	note := file.Section(".note.go.buildid")
	if note == nil {
		return nil, errors.New("it has no build id")
	}
	return note.Data()
}

func isStaged(path string, size int64) bool {
	have, err := os.Stat(path)
	return err == nil && have.Size() == size
}

// write writes a program, of which it holds a piece in memory at a time. No process is forked meanwhile: it would
// inherit the open file for a moment, in which the program could not be started ("text file busy").
func write(path string, content io.Reader) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	temp, err := os.CreateTemp(filepath.Dir(path), ".guestd-*")
	if err != nil {
		return err
	}
	_, err = io.Copy(temp, content)
	err = errors.Join(err, unix.Fchmod(int(temp.Fd()), 0o755), temp.Close())
	if err == nil {
		err = os.Rename(temp.Name(), path)
	}
	if err != nil {
		os.Remove(temp.Name())
		return fmt.Errorf("copy the guest program: %w", err)
	}
	return nil
}
