// Package local makes boxes on this machine out of Linux namespaces, without an engine and without images: the system's own
// folders, read-only, under a private root. As root it gives each box users of its own and bounds it by cgroups; without root it
// does the same by a user namespace and says what is weaker.
//
// A box is a process that was cloned into new namespaces, the guest, and a folder with its record. The guest is nobody's child that
// matters: it lives on when this program ends, and dials the socket in the box's folder again when there is a new one.
package local

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/evalfleet/evalfleet/services/sandboxd/internal/driver"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/program"
)

// Config sets the driver up.
type Config struct {
	// Dir holds the boxes' records; it is made.
	Dir string
	// GuestPath is the guest program on this machine.
	GuestPath string
	// Python is the prefix of a Python installation to show in boxes; empty looks for the python3 of PATH where that is not the system's.
	Python string
	// SearchPath is the host's PATH, to find python3 in.
	SearchPath string
	Logger     *slog.Logger
}

// Driver is the local driver.
type Driver struct {
	dir     string
	guest   string // our own copy of the guest program
	log     *slog.Logger
	find    func(context.Context) system
	found   sync.Once
	system  system   // once found
	cgroups *cgroups // nil where none can be used
	noGroup error    // why there are none
	root    bool
	many    bool // boxes have a range of users

	locks driver.Locks
	mu    sync.Mutex
	doors map[string]*boxDoor // boxes that this process listens for
}

// New makes the driver. It makes no box and starts no program.
func New(cfg Config) (*Driver, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	d := &Driver{dir: cfg.Dir, log: cfg.Logger, root: os.Geteuid() == 0, doors: map[string]*boxDoor{}}
	if err := os.MkdirAll(d.dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the folder of boxes: %w", err)
	}
	var err error
	if d.guest, err = program.Stage(cfg.GuestPath, d.dir); err != nil {
		return nil, err
	}
	d.find = func(ctx context.Context) system { return findSystem(ctx, cfg.Python, cfg.SearchPath) }
	if d.cgroups, d.noGroup = findCgroups(d.log); d.cgroups != nil {
		d.cgroups.sweep()
	}
	d.many = d.root && mapsAll()
	return d, nil
}

// look finds what boxes are made of, once. It may start Python.
func (d *Driver) look(ctx context.Context) {
	d.found.Do(func() { d.system = d.find(context.WithoutCancel(ctx)) })
}

// Name is `local`.
func (d *Driver) Name() string { return "local" }

// Connect waits for the guest of a box.
func (d *Driver) Connect(ctx context.Context, id string) (net.Conn, error) {
	b, err := d.adopt(id)
	if err != nil {
		return nil, err
	}
	for {
		select {
		case c := <-b.Conns():
			return c, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-b.Closed():
			return nil, driver.Lost(id)
		case <-time.After(time.Second):
			if !b.record.alive() {
				d.log.Warn("the guest of a box has ended", "box", id, "words", lastWords(d.folder(id)))
				return nil, driver.Lost(id)
			}
		}
	}
}

// Destroy kills the box's first process, and with it all others, and removes what is left of it.
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
	b := d.doors[id]
	delete(d.doors, id)
	d.mu.Unlock()
	if b != nil {
		b.Close()
	}
	folder := d.folder(id)
	rec, err := readRecord(folder)
	if errors.Is(err, os.ErrNotExist) {
		rec, err = &record{ID: id}, nil // a crash came before the record; nothing ran in the box
		if d.cgroups != nil {
			rec.Cgroups = d.cgroups.named(id)
		}
	}
	if err != nil {
		return err
	}
	if err := rec.kill(ctx); err != nil {
		return err
	}
	if err := d.removeGroups(ctx, rec); err != nil {
		return err
	}
	return os.RemoveAll(folder)
}

// List reads the records of an owner's boxes.
func (d *Driver) List(_ context.Context, owner string) ([]driver.Observed, error) {
	entries, err := os.ReadDir(d.dir)
	if err != nil {
		return nil, fmt.Errorf("read the folder of boxes: %w", err)
	}
	var out []driver.Observed
	for _, e := range entries {
		if !e.IsDir() || !driver.ValidID(e.Name()) {
			continue
		}
		rec, err := readRecord(d.folder(e.Name()))
		if errors.Is(err, os.ErrNotExist) {
			// A folder without a record is what a crash left between the two: nothing ran in it. It belongs to whoever owns the folder.
			out = append(out, driver.Observed{ID: e.Name()})
			continue
		}
		if err != nil {
			return nil, err
		}
		if rec.Owner == owner {
			out = append(out, driver.Observed{ID: rec.ID, Labels: rec.Labels, Created: rec.Created, Alive: rec.alive(), Report: rec.Report})
		}
	}
	return out, nil
}

// Close stops listening for guests; they wait for the next one who does.
func (d *Driver) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for id, b := range d.doors {
		b.Close()
		delete(d.doors, id)
	}
	return nil
}

// removeGroups removes the cgroups of a box; where this process has no cgroups, they are left to one that has.
func (d *Driver) removeGroups(ctx context.Context, rec *record) error {
	if d.cgroups == nil || len(rec.Cgroups) == 0 {
		return nil
	}
	return d.cgroups.remove(ctx, rec.Cgroups)
}

func (d *Driver) folder(id string) string { return filepath.Join(d.dir, id) }

// adopt gives the box of that id, listening for its guest.
func (d *Driver) adopt(id string) (*boxDoor, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if b, ok := d.doors[id]; ok {
		return b, nil
	}
	if !driver.ValidID(id) {
		return nil, driver.Lost(id)
	}
	rec, err := readRecord(d.folder(id))
	if err != nil || !rec.alive() {
		return nil, driver.Lost(id)
	}
	b, err := listen(d.folder(id), rec, d.log)
	if err != nil {
		return nil, err
	}
	d.doors[id] = b
	return b, nil
}

// mapsAll tells that this process can map any user of the machine into a namespace.
func mapsAll() bool {
	data, err := os.ReadFile("/proc/self/uid_map")
	var inside, outside, count uint64
	if err != nil {
		return false
	}
	_, err = fmt.Sscan(string(data), &inside, &outside, &count)
	return err == nil && inside == 0 && count > firstRange+ranges*rangeSize
}
