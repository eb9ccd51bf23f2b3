// Package datadir is the folder of a server on one machine: what lies where in it, and who holds it.
//
//	evalfleet.db    journal, effect ledgers and catalogue (SQLite, with -wal and -shm beside it)
//	blobs/          bodies by their content
//	sandboxes/      what the local sandbox driver needs
//	evalfleet.log   log of servers that commands started in their own process
//	token           the admin token, readable by its owner alone
//	lock            held by the process that serves the folder: {"address": …, "pid": …, "version": …}
//
// At most one process serves a folder. Whoever comes second finds the first one's address in the lock and becomes its client.
package datadir

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/evalfleet/evalfleet/pkg/version"
)

// Dir is a data directory. Its methods may be called concurrently.
type Dir struct{ path string }

// Default returns the folder of those who name none: $XDG_DATA_HOME/evalfleet, or ~/.local/share/evalfleet. Env tells the environment.
func Default(env func(string) (string, bool)) (string, error) {
	if base, ok := env("XDG_DATA_HOME"); ok && filepath.IsAbs(base) {
		return filepath.Join(base, "evalfleet"), nil
	}
	if home, ok := env("HOME"); ok && home != "" {
		return filepath.Join(home, ".local", "share", "evalfleet"), nil
	}
	return "", errors.New("no home for data: HOME is not set; name a folder with --data-dir")
}

// Open makes the folder where it is not there, for its owner alone.
func Open(path string) (Dir, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return Dir{}, err
	}
	for _, p := range []string{path, filepath.Join(path, "blobs"), filepath.Join(path, "sandboxes")} {
		if err := os.MkdirAll(p, 0o700); err != nil {
			return Dir{}, fmt.Errorf("data directory: %w; name another with --data-dir", err)
		}
	}
	return Dir{path: path}, nil
}

// Path returns the folder's absolute path.
func (d Dir) Path() string { return d.path }

// Database returns where the SQLite database is.
func (d Dir) Database() string { return filepath.Join(d.path, "evalfleet.db") }

// Blobs returns the folder of bodies.
func (d Dir) Blobs() string { return filepath.Join(d.path, "blobs") }

// Sandboxes returns the folder of the local sandbox driver.
func (d Dir) Sandboxes() string { return filepath.Join(d.path, "sandboxes") }

// Token returns where the admin token is.
func (d Dir) Token() string { return filepath.Join(d.path, "token") }

// maxLogBytes bounds the log that is appended to; a longer one is begun anew.
const maxLogBytes = 16 << 20

// Log opens the log of servers that have no other place for it. The caller closes it.
func (d Dir) Log() (*os.File, error) {
	path, flags := filepath.Join(d.path, "evalfleet.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND
	if info, err := os.Stat(path); err == nil && info.Size() > maxLogBytes {
		flags |= os.O_TRUNC
	}
	return os.OpenFile(path, flags, 0o600)
}

// Holder is the process that serves a data directory.
type Holder struct {
	// Address is where it takes clients; empty while it starts, or when it takes none.
	Address string `json:"address"`
	// PID is its process id.
	PID int `json:"pid"`
	// Version is its build.
	Version string `json:"version"`
}

// alive reports whether the process is there. When it was killed amid a fork, its child holds the lock a moment longer, and the address leads nowhere.
func (h Holder) alive() bool {
	err := syscall.Kill(h.PID, 0)
	return err == nil || errors.Is(err, syscall.EPERM)
}

// Lock is a data directory held by this process. It is not for concurrent use.
type Lock struct{ file *os.File }

// poll is how often a claim looks again at a folder that is held by a process without an address.
const poll = 20 * time.Millisecond

// Claim takes the folder for this process, or tells who serves it: exactly one of lock and holder is set. A holder that has no address yet is waited for until ctx ends.
func (d Dir) Claim(ctx context.Context) (lock *Lock, holder Holder, err error) {
	file, err := os.OpenFile(filepath.Join(d.path, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, Holder{}, fmt.Errorf("data directory: %w", err)
	}
	defer func() {
		if lock == nil {
			err = errors.Join(err, file.Close())
		}
	}()
	for {
		switch err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); {
		case err == nil:
			lock = &Lock{file: file}
			return lock, Holder{}, lock.Announce("")
		case !errors.Is(err, syscall.EWOULDBLOCK):
			return nil, Holder{}, fmt.Errorf("lock %s: %w", file.Name(), err)
		}
		if holder, ok := read(file); ok && holder.Address != "" && holder.alive() {
			return nil, holder, nil
		}
		select {
		case <-ctx.Done():
			holder, _ := read(file)
			return nil, Holder{}, fmt.Errorf("data directory %s is held by process %d, which takes no clients; try again, or name another with --data-dir", d.path, holder.PID)
		case <-time.After(poll):
		}
	}
}

// Announce writes into the lock where this process takes clients.
func (l *Lock) Announce(address string) error {
	b, err := json.Marshal(Holder{Address: address, PID: os.Getpid(), Version: version.String()})
	if err != nil {
		return err
	}
	// A reader may see it half written; it then looks again.
	if err := l.file.Truncate(0); err != nil {
		return err
	}
	_, err = l.file.WriteAt(append(b, '\n'), 0)
	return err
}

// Release lets the folder go. The lock also ends with its process, however that ends.
func (l *Lock) Release() error {
	return errors.Join(l.file.Truncate(0), l.file.Close())
}

// read reads who holds the folder. What is half written, or empty, is nobody yet.
func read(file *os.File) (Holder, bool) {
	b, err := io.ReadAll(io.NewSectionReader(file, 0, 4096))
	if err != nil {
		return Holder{}, false
	}
	var h Holder
	if json.Unmarshal(b, &h) != nil {
		return Holder{}, false
	}
	return h, true
}
