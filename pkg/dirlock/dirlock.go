// Package dirlock lets at most one process serve a folder, and tells others who that is. The file `lock` in the folder
// is locked (flock) by the process that serves it, and says {"address": …, "pid": …, "version": …}. The kernel lets go
// of it when the process has ended, however that came, so that nothing that a crash leaves must be cleared away.
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
	// Address is where it takes clients; empty while it starts, or when it takes none.
	Address string `json:"address"`
	// PID is its process id.
	PID int `json:"pid"`
	// Version is its build.
	Version string `json:"version"`
}

// HeldError tells that another process serves a folder, and goes on doing so.
type HeldError struct {
	Dir    Dir
	Holder Holder
	// Silent tells that nobody answers at the holder's address.
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

// Patience is how long one should wait for a holder that starts, or that was killed and is not gone yet: a process with
// much memory, or on a busy disk, takes its time to die.
const Patience = 15 * time.Second

// How often a claim looks again, and how long a holder may take to answer.
const (
	poll   = 20 * time.Millisecond
	answer = time.Second
)

// Take takes the folder, which is made where it is not there, to serve it. A holder is waited for until ctx's deadline,
// unless it answers at its address: then it lives, and Take fails with a [*HeldError] at once. Where ctx is cancelled,
// its error is returned.
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

// Claim takes the folder for this process, or tells who serves it: exactly one of lock and holder is set. A holder that
// has no address yet is waited for until ctx's deadline; Claim then fails with a [*HeldError]. Where ctx is cancelled,
// its error is returned.
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

// givenUp is why the wait for a holder has ended with ctx: its time is over, or nobody wants the folder any more.
func (d Dir) givenUp(ctx context.Context, holder Holder) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return ctx.Err()
	}
	return &HeldError{Dir: d, Holder: holder, Silent: true}
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

// alive reports whether the process is there. When it was killed amid a fork, its child holds the lock a moment longer,
// and the address leads nowhere.
func (h Holder) alive() bool {
	err := syscall.Kill(h.PID, 0)
	return err == nil || errors.Is(err, syscall.EPERM)
}

// answers asks the holder. One that was killed and is not gone yet may still have its port and says nothing there.
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
