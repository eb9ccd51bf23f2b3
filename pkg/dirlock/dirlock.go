// Package dirlock lets at most one process serve a folder, and lets other processes find that one. The serving process
// locks (flock) the file `lock` in the folder, whose content is {"address": …, "pid": …, "version": …}. The kernel
// releases the lock when the process ends, whatever the cause, so that a crash leaves nothing to clean up.
package dirlock

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

	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/evalfleet/evalfleet/pkg/grpcclient"
	"github.com/evalfleet/evalfleet/pkg/version"
)

// Dir is a folder that one process may serve. Its methods are safe for concurrent use.
type Dir struct {
	Path string
	// Option is how an operator names another folder, such as --data-dir.
	Option string
}

// Holder is the process that serves a folder.
type Holder struct {
	// Address is the address for clients; empty while the process starts, or if it has none.
	Address string `json:"address"`
	// PID is its process id.
	PID int `json:"pid"`
	// Version is its build.
	Version string `json:"version"`
}

// HeldError is the error for a folder that another process serves and keeps serving.
type HeldError struct {
	Dir    Dir
	Holder Holder
	// Silent means that the holder's address does not answer.
	Silent bool
}

func (e *HeldError) Error() string {
	who := fmt.Sprintf("data directory %s is held by process %d, which", e.Dir.Path, e.Holder.PID)
	switch another := "or name another with " + e.Dir.Option; {
	case e.Holder.Address == "":
		return who + " takes no clients; try again, " + another
	case e.Silent:
		return who + " does not answer at " + e.Holder.Address + "; end it, " + another
	default:
		return who + " serves at " + e.Holder.Address + "; stop it, " + another
	}
}

// Lock is a folder held by this process. It is not for concurrent use.
type Lock struct{ file *os.File }

// Patience is how long to wait for a holder that starts, or that was killed and has not ended yet: a process with much
// memory, or on a busy disk, needs time to end.
const Patience = 15 * time.Second

// How often a claim looks again, and how long a holder may take to answer.
const (
	poll   = 20 * time.Millisecond
	answer = time.Second
)

// Take locks the folder, which it creates if it does not exist, to serve it. Take waits for a holder until ctx's
// deadline, unless the holder answers at its address: then the holder is alive, and Take fails with a [*HeldError] at
// once. If ctx is cancelled, Take returns its error.
func (d Dir) Take(ctx context.Context) (*Lock, error) {
	if err := os.MkdirAll(d.Path, 0o700); err != nil {
		return nil, fmt.Errorf("data directory: %w; name another with %s", err, d.Option)
	}
	for {
		lock, holder, err := d.Claim(ctx)
		if err != nil || lock != nil {
			return lock, err
		}
		if holder.answers(ctx) {
			return nil, &HeldError{Dir: d, Holder: holder}
		}
		select {
		case <-ctx.Done():
			return nil, d.givenUp(ctx, holder)
		case <-time.After(poll):
		}
	}
}

// Claim locks the folder for this process, or returns its holder: exactly one of lock and holder is set. Claim waits
// for a holder without an address until ctx's deadline and then fails with a [*HeldError]. If ctx is cancelled, Claim
// returns its error.
func (d Dir) Claim(ctx context.Context) (lock *Lock, holder Holder, err error) {
	file, err := os.OpenFile(filepath.Join(d.Path, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
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
			if err := d.own(); err != nil {
				return nil, Holder{}, err
			}
			taken := &Lock{file: file}
			if err := taken.Announce(""); err != nil {
				return nil, Holder{}, fmt.Errorf("data directory: write the lock: %w", err)
			}
			return taken, Holder{}, nil
		case !errors.Is(err, syscall.EWOULDBLOCK):
			return nil, Holder{}, fmt.Errorf("lock %s: %w", file.Name(), err)
		}
		holder, known := read(file)
		if known && holder.Address != "" && holder.alive() {
			return nil, holder, nil
		}
		select {
		case <-ctx.Done():
			return nil, Holder{}, d.givenUp(ctx, holder)
		case <-time.After(poll):
		}
	}
}

// own fails where another user could have prepared the folder, such as with a token that this user knows.
func (d Dir) own() error {
	info, err := os.Stat(d.Path)
	if err != nil {
		return fmt.Errorf("data directory: %w", err)
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case ok && stat.Uid != 0 && int(stat.Uid) != os.Geteuid():
		return fmt.Errorf("data directory %s belongs to user %d, and this process runs as user %d; run as that user, or name another with %s", d.Path, stat.Uid, os.Geteuid(), d.Option)
	case info.Mode().Perm()&0o002 != 0:
		return fmt.Errorf("everybody can write to data directory %s; run chmod o-w on it, or name another with %s", d.Path, d.Option)
	}
	return nil
}

// givenUp is the reason why the wait for a holder has ended with ctx: its deadline, or its cancellation.
func (d Dir) givenUp(ctx context.Context, holder Holder) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return ctx.Err()
	}
	return &HeldError{Dir: d, Holder: holder, Silent: true}
}

// Announce writes the address of this process for clients into the lock.
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

// Release releases the folder. The lock also ends with its process, whatever the cause.
func (l *Lock) Release() error {
	return errors.Join(l.file.Truncate(0), l.file.Close())
}

// read returns the holder of the folder. A partly written or empty file means that there is none yet.
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

// alive reports whether the process exists. If the process was killed during a fork, its child holds the lock for a
// moment, and the address does not answer.
func (h Holder) alive() bool {
	err := syscall.Kill(h.PID, 0)
	return err == nil || errors.Is(err, syscall.EPERM)
}

// answers sends a request to the holder. A holder that was killed and has not ended yet may still have its port open
// without answering.
func (h Holder) answers(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, answer)
	defer cancel()
	conn, err := grpcclient.New(h.Address, grpcclient.Options{FailFast: true})
	if err != nil {
		return false
	}
	defer conn.Close()
	_, err = healthv1.NewHealthClient(conn).Check(ctx, &healthv1.HealthCheckRequest{})
	return err == nil
}
