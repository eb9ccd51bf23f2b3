// Package boxstore is shared by drivers whose boxes are on this machine: it has a folder for each box with its record,
// the listener for its guest, and a lock for each box. The driver decides what a box is, and how it is made and ended.
//
// A folder is made before its box and removed after it, so that the next process finds a box that a crash left half
// made.
package boxstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/driver"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/guest/box"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/guestlistener"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/rmtree"
)

// Config is a driver's folder of boxes, and its operations on them.
type Config struct {
	// Dir has one folder for each box. It is created if it does not exist.
	Dir string
	// Find finds the first process of a box that was made and returns the function that recognizes that process among
	// those that dial. It fails with SANDBOX_LOST if the box no longer exists.
	Find func(ctx context.Context, id string) (admit func(pid int) bool, err error)
	// End kills everything that runs in a box, even in a partly made one, and removes what is left of it outside of its
	// folder. A box that no longer exists is no error.
	End    func(ctx context.Context, id string) error
	Logger *slog.Logger
}

// Store has the boxes of one driver. It is safe for concurrent use.
type Store struct {
	cfg   Config
	locks locks

	mu    sync.Mutex
	doors map[string]*guestlistener.Listener // of boxes that this process listens for
}

// Open creates the folder. It does not listen yet.
func Open(cfg Config) (*Store, error) {
	dir, err := filepath.Abs(cfg.Dir)
	if err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	if err != nil {
		return nil, fmt.Errorf("make the folder of boxes: %w", err)
	}
	cfg.Dir = dir
	return &Store{cfg: cfg, doors: map[string]*guestlistener.Listener{}}, nil
}

// Dir returns the folder of all boxes.
func (b *Store) Dir() string { return b.cfg.Dir }

// Folder returns the folder of a box.
func (b *Store) Folder(id string) string { return filepath.Join(b.cfg.Dir, id) }

// Control returns the folder of a box in which this program listens. Only the box's guest can reach it.
func (b *Store) Control(id string) string { return filepath.Join(b.Folder(id), "ctl") }

// Create returns the box of that id, and makes it if it does not exist. It first removes a partly made box that a crash
// left, because nothing ever ran in it, and removes what build leaves when it fails. A transient failure is
// SANDBOX_QUOTA or STORE_UNAVAILABLE, with RetryInfo.
func (b *Store) Create(ctx context.Context, id string, build func() (driver.Report, error)) (report driver.Report, err error) {
	defer func() { err = b.explain(ctx, err) }()
	unlock, err := b.locks.lock(ctx, id)
	if err != nil {
		return driver.Report{}, err
	}
	defer unlock()
	rec, err := Read[Record](b, id)
	if err == nil && rec.Ready {
		_, err = b.cfg.Find(ctx, id)
		return rec.Report, err
	}
	if err != nil && !errors.Is(err, ErrNoRecord) {
		return driver.Report{}, err
	}
	if err := b.Clear(ctx, id); err != nil {
		return driver.Report{}, err
	}
	report, err = build()
	if err != nil {
		if left := b.Clear(context.WithoutCancel(ctx), id); left != nil {
			b.cfg.Logger.Warn("cannot clear away a box that could not be made; it is found again by its folder", "box", id, "error", left)
		}
	}
	return report, err
}

// explain gives failures of the machine their kind; all other errors stay as they are.
func (b *Store) explain(ctx context.Context, err error) error {
	_, told := rpcerr.As(err)
	switch {
	case err == nil, told, ctx.Err() != nil:
		return err
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return driver.NoRoom("the disk of " + b.cfg.Dir + " takes nothing: " + err.Error())
	case errors.Is(err, syscall.EIO), errors.Is(err, syscall.EROFS), errors.Is(err, syscall.ESTALE):
		return rpcerr.FromDisk(err, b.cfg.Dir)
	case box.Transient(err):
		return driver.Shortage(err)
	}
	return err
}

// Listen starts the listener of a box that is being made.
func (b *Store) Listen(id string, admit func(pid int) bool) (*guestlistener.Listener, error) {
	open, err := guestlistener.Listen(b.Control(id), admit, b.cfg.Logger)
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.doors[id] = open
	return open, nil
}

// lookEvery is how often Connect checks that a box still runs while its guest does not dial.
const lookEvery = time.Second

// Connect waits for the next connection of a box's guest. It fails with SANDBOX_LOST if the box no longer exists, and
// with SERVICE_UNAVAILABLE if a shortage prevents reaching it or finding out whether it exists.
func (b *Store) Connect(ctx context.Context, id string) (_ net.Conn, err error) {
	defer func() {
		if _, told := rpcerr.As(err); !told && ctx.Err() == nil && box.Transient(err) {
			err = rpcerr.ServiceUnavailable("sandboxd", time.Second, "the box %s cannot be reached now: %w", id, err)
		}
	}()
	open, err := b.adopt(ctx, id)
	if err != nil {
		return nil, err
	}
	for {
		select {
		case c := <-open.Conns():
			return c, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-open.Closed():
			return nil, driver.Lost(id, "")
		case <-time.After(lookEvery):
			if _, err := b.cfg.Find(ctx, id); err != nil {
				return nil, err
			}
		}
	}
}

// adopt returns the listener of a box. It starts the listener if this process has none yet.
func (b *Store) adopt(ctx context.Context, id string) (*guestlistener.Listener, error) {
	unlock, err := b.locks.lock(ctx, id)
	if _, invalid := rpcerr.As(err); invalid {
		return nil, driver.Lost(id, "") // no box of that id was ever made
	}
	if err != nil {
		return nil, err
	}
	defer unlock()
	b.mu.Lock()
	open := b.doors[id]
	b.mu.Unlock()
	if open != nil {
		return open, nil
	}
	admit, err := b.cfg.Find(ctx, id)
	if err != nil {
		return nil, err
	}
	return b.Listen(id, admit)
}

// Destroy ends a box and removes its folder.
func (b *Store) Destroy(ctx context.Context, id string) error {
	unlock, err := b.locks.lock(ctx, id)
	if err != nil {
		return err
	}
	defer unlock()
	return b.Clear(ctx, id)
}

// Clear is Destroy for a caller that holds the box's lock.
func (b *Store) Clear(ctx context.Context, id string) error {
	b.mu.Lock()
	open := b.doors[id]
	delete(b.doors, id)
	b.mu.Unlock()
	if open != nil {
		open.Close()
	}
	if err := b.cfg.End(ctx, id); err != nil {
		return err
	}
	return rmtree.Remove(b.Folder(id))
}

// List reads the records of an owner's boxes, and checks of each whether its first process runs, and if not, why it
// ended, as far as that is known. If the check of one box fails, List fails, because a live box must not be taken for a
// dead one. A box that is destroyed in the meantime, for which look fails with ErrNoRecord, is left out.
func (b *Store) List(owner string, look func(id string) (alive bool, ended string, err error)) ([]driver.Observed, error) {
	entries, err := os.ReadDir(b.cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("read the folder of boxes: %w", err)
	}
	var out []driver.Observed
	for _, e := range entries {
		id := e.Name()
		if !e.IsDir() || !driver.ValidID(id) {
			continue // the guest program
		}
		rec, err := Read[Record](b, id)
		switch {
		case errors.Is(err, ErrNoRecord):
			if !errors.Is(err, os.ErrNotExist) {
				b.cfg.Logger.Warn("a box is known by its folder alone", "box", id, "error", err)
			}
			// It belongs to whoever owns the folder of all.
			left := driver.Observed{ID: id}
			if info, err := e.Info(); err == nil {
				left.Created = info.ModTime()
			}
			out = append(out, left)
		case err != nil:
			return nil, err
		case rec.Owner == owner:
			alive, ended, err := look(id)
			if errors.Is(err, ErrNoRecord) {
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("look for the box %s: %w", id, err)
			}
			out = append(out, driver.Observed{ID: id, Labels: rec.Labels, Created: rec.Created, Alive: alive, Ended: ended, Report: rec.Report})
		}
	}
	return out, nil
}

// Close stops listening for guests. They wait for the next process that listens.
func (b *Store) Close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for id, open := range b.doors {
		open.Close()
		delete(b.doors, id)
	}
}
