// Package docker makes boxes as containers of a Docker Engine on this machine, each from an image.
//
// The engine only makes, bounds and removes containers: the guest is mounted into each, is its first process whatever the image
// would start, and dials out over a socket in a second mounted folder. Commands and files go that way; the engine is not asked
// again. What an image decides is where commands start, as whom, and with which variables.
//
// A box is a container, found by its name and its labels, and a folder with its record. The folder is made before the container
// and removed after it, so that a crash in between leaves something to find.
package docker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/evalfleet/evalfleet/services/sandboxd/internal/door"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/driver"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/program"
)

// Deps are what the program hands in.
type Deps struct {
	// Dir holds the boxes' records and the folders that are mounted; it is made. The engine must see it under the same path.
	Dir string
	// GuestPath is the guest program on this machine.
	GuestPath string
	Logger    *slog.Logger
}

// Driver is the docker driver.
type Driver struct {
	cfg    Config
	dir    string // of boxes
	guest  string // our own copy of the guest program
	log    *slog.Logger
	engine *engine
	images *images
	locks  driver.Locks

	mu    sync.Mutex
	doors map[string]*door.Door // of boxes that this process listens for
}

// New makes the driver. It does not talk to the engine yet.
func New(cfg Config, deps Deps) (*Driver, error) {
	cfg.SetDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if deps.Logger == nil {
		deps.Logger = slog.New(slog.DiscardHandler)
	}
	dir, err := filepath.Abs(deps.Dir)
	if err != nil {
		return nil, fmt.Errorf("find the folder of containers: %w", err)
	}
	d := &Driver{cfg: cfg, dir: dir, log: deps.Logger, doors: map[string]*door.Door{}}
	if err := os.MkdirAll(d.dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the folder of containers: %w", err)
	}
	if d.guest, err = program.Stage(deps.GuestPath, dir); err != nil {
		return nil, err
	}
	if d.engine, err = newEngine(cfg.Host); err != nil {
		return nil, err
	}
	d.images = newImages(cfg, d.engine, d.log)
	return d, nil
}

// Name is `docker`.
func (d *Driver) Name() string { return "docker" }

// Connect waits for the guest of a box.
func (d *Driver) Connect(ctx context.Context, id string) (net.Conn, error) {
	open, err := d.adopt(ctx, id)
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
			return nil, driver.Lost(id)
		case <-time.After(time.Second):
			rec, err := readRecord(d.folder(id))
			if err != nil {
				return nil, driver.Lost(id)
			}
			found, err := d.engine.inspect(ctx, id)
			if err != nil {
				return nil, err
			}
			if !found.is(rec) {
				return nil, driver.Lost(id)
			}
		}
	}
}

// adopt gives the door of a box, listening for its guest where this process does not yet.
func (d *Driver) adopt(ctx context.Context, id string) (*door.Door, error) {
	unlock, err := d.locks.Lock(ctx, id)
	if err != nil {
		return nil, driver.Lost(id)
	}
	defer unlock()
	if open := d.door(id); open != nil {
		return open, nil
	}
	rec, err := readRecord(d.folder(id))
	if err != nil || !rec.Ready {
		return nil, driver.Lost(id)
	}
	found, err := d.engine.inspect(ctx, id)
	if err != nil {
		return nil, err
	}
	if !found.is(rec) {
		return nil, driver.Lost(id)
	}
	open, err := door.Open(d.control(id), isGuest(found.pid), d.log)
	if err != nil {
		return nil, err
	}
	d.keep(id, open)
	return open, nil
}

// isGuest tells the first process of a container by its id. One that cannot be seen from here, because this program is in a
// container too, is known by the folder alone, which no command can enter.
func isGuest(first int) func(int) bool {
	return func(pid int) bool { return pid == first || pid == 0 }
}

// Destroy removes the container with all that runs in it, and what is kept of it.
func (d *Driver) Destroy(ctx context.Context, id string) error {
	unlock, err := d.locks.Lock(ctx, id)
	if err != nil {
		return err
	}
	defer unlock()
	return d.destroy(ctx, id)
}

// destroy is Destroy for those who hold the box's lock.
func (d *Driver) destroy(ctx context.Context, id string) error {
	d.mu.Lock()
	open := d.doors[id]
	delete(d.doors, id)
	d.mu.Unlock()
	if open != nil {
		open.Close()
	}
	_, err := os.Stat(d.folder(id))
	none := errors.Is(err, os.ErrNotExist)
	err = d.engine.remove(ctx, id)
	if none && isAway(err) {
		return nil // nothing was made
	}
	if err != nil {
		return err
	}
	return os.RemoveAll(d.folder(id))
}

// List finds an owner's boxes by the labels of containers, and by folders whose container is gone or was never made.
func (d *Driver) List(ctx context.Context, owner string) ([]driver.Observed, error) {
	entries, err := os.ReadDir(d.dir)
	if err != nil {
		return nil, fmt.Errorf("read the folder of containers: %w", err)
	}
	found, err := d.engine.list(ctx, owner)
	if isAway(err) && !slices.ContainsFunc(entries, os.DirEntry.IsDir) {
		return nil, nil // nothing was ever made
	}
	if err != nil {
		return nil, err
	}
	var out []driver.Observed
	for _, e := range entries {
		id := e.Name()
		if !e.IsDir() || !driver.ValidID(id) {
			continue // the guest program
		}
		rec, err := readRecord(d.folder(id))
		switch {
		case errors.Is(err, os.ErrNotExist):
			out = append(out, driver.Observed{ID: id}) // a crash left it so; it belongs to whoever owns the folder
		case err != nil:
			return nil, err
		case rec.Owner == owner:
			out = append(out, driver.Observed{ID: id, Labels: rec.Labels, Created: rec.Created, Alive: found[id].is(rec), Report: rec.Report})
		}
		delete(found, id)
	}
	for id, c := range found {
		out = append(out, driver.Observed{ID: id, Created: c.created})
	}
	return out, nil
}

// Close stops listening for guests; they wait for the next one who does.
func (d *Driver) Close() error {
	d.images.close()
	d.mu.Lock()
	defer d.mu.Unlock()
	for id, open := range d.doors {
		open.Close()
		delete(d.doors, id)
	}
	return d.engine.close()
}

func (d *Driver) door(id string) *door.Door {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.doors[id]
}

func (d *Driver) keep(id string, open *door.Door) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.doors[id] = open
}

// folder is what is kept of a box; control, in it, is mounted into the container.
func (d *Driver) folder(id string) string  { return filepath.Join(d.dir, id) }
func (d *Driver) control(id string) string { return filepath.Join(d.folder(id), "ctl") }
