// Package datadir is the folder of a server on one machine: what lies where in it.
//
//	evalfleet.db    journal, effect ledgers and catalogue (SQLite, with -wal and -shm beside it)
//	blobs/          bodies by their content
//	sandboxes/      what the local sandbox driver needs
//	evalfleet.log   log of servers that commands started in their own process
//	token           the admin token, readable by its owner alone
//	lock            held by the process that serves the folder (pkg/dirlock)
//
// At most one process serves a folder. Whoever comes second finds the first one's address in the lock and becomes its
// client.
package datadir

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/evalfleet/evalfleet/pkg/dirlock"
)

// Dir is a data directory. Its methods are safe for concurrent use.
type Dir struct{ path string }

// Default returns the default folder: $XDG_DATA_HOME/evalfleet, or ~/.local/share/evalfleet. env looks up variables of
// the environment.
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

// Lock returns the folder's lock.
func (d Dir) Lock() dirlock.Dir { return dirlock.Dir{Path: d.path, Option: "--data-dir"} }

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

// maxLogBytes bounds the log that is appended to; a longer one is truncated.
const maxLogBytes = 16 << 20

// Log opens the log of servers that have no other place for it. The caller closes it.
func (d Dir) Log() (*os.File, error) {
	path, flags := filepath.Join(d.path, "evalfleet.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND
	if info, err := os.Stat(path); err == nil && info.Size() > maxLogBytes {
		flags |= os.O_TRUNC
	}
	return os.OpenFile(path, flags, 0o600)
}
