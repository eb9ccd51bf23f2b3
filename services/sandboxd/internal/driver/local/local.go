// Package local makes boxes on this machine out of Linux namespaces, without an engine and without images: the system's
// own folders, read-only, under a private root. As root it gives each box users of its own; without root it does the
// same by a user namespace and says what is weaker. Cgroups bound a box: those that this process may make, or, without
// root, that the user's systemd gives it. Where there are none, a box is made only if it may be unisolated.
//
// A box is a process that was cloned into new namespaces, the guest, and a folder with its record. The guest is a child
// whose parent does not matter: it lives on when this program ends, and dials the socket in the box's folder again when
// there is a new one.
package local

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/evalfleet/evalfleet/services/sandboxd/internal/driver"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/driver/boxstore"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/guest/box"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/guestbinary"
)

// Config configures the driver.
type Config struct {
	// Dir has the boxes' records; it is created.
	Dir string
	// GuestPath is the guest program on this machine.
	GuestPath string
	// Python is the prefix of a Python installation to show in boxes; empty looks for the python3 of PATH where that is
	// not the system's. One whose prefix is the user's home, or has that or Dir in it, is refused; one that is found
	// there is left out.
	Python string
	// SearchPath is the host's PATH, to find python3 in.
	SearchPath string
	Logger     *slog.Logger
}

// Driver is the local driver.
type Driver struct {
	boxes  *boxstore.Store
	guest  *guestbinary.Program
	given  string // the guest program, for people
	log    *slog.Logger
	search func(context.Context) system
	found  sync.Once
	system system // once found
	root   bool
	many   bool // boxes have a range of users

	source   groupSource
	grouping sync.Mutex
	cgroups  *cgroups // nil where none can be used
	noGroup  error    // why there are none; nil where there are some
	asked    bool     // systemd was asked for some

	measuring chan struct{}                // has room for one: who measures
	measured  atomic.Pointer[capabilities] // nil: not yet
}

// New makes the driver. It makes no box and starts no program.
func New(cfg Config) (*Driver, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	d := &Driver{log: cfg.Logger, given: cmp.Or(cfg.GuestPath, "guestd"), root: os.Geteuid() == 0, source: machineGroups(cfg.Logger)}
	d.measuring = make(chan struct{}, 1)
	var err error
	if d.boxes, err = boxstore.Open(boxstore.Config{Dir: cfg.Dir, Find: d.find, End: d.end, Logger: cfg.Logger}); err != nil {
		return nil, err
	}
	if d.guest, err = guestbinary.Find(cfg.GuestPath, d.boxes.Dir()); err != nil {
		return nil, err
	}
	private := []string{d.boxes.Dir()}
	if home, err := os.UserHomeDir(); err == nil {
		private = append(private, home)
	}
	if err := tooWide(cfg.Python, private); err != nil {
		return nil, err
	}
	d.search = func(ctx context.Context) system { return findSystem(ctx, cfg.Python, cfg.SearchPath, private, d.log) }
	if d.cgroups, d.noGroup = d.source.find(); d.cgroups != nil {
		d.cgroups.sweep()
	}
	d.asked = d.root // root needs no delegation
	mapsAll, err := mapsAll()
	d.many = d.root && mapsAll
	return d, err
}

// look finds what boxes are made of, once. It may start Python.
func (d *Driver) look(ctx context.Context) {
	d.found.Do(func() { d.system = d.search(context.WithoutCancel(ctx)) })
}

// groups returns where cgroups for boxes can be created. Nil means nowhere, for the returned reason. If a shortage was
// the cause, the next call searches again.
func (d *Driver) groups() (*cgroups, error) {
	d.grouping.Lock()
	defer d.grouping.Unlock()
	if d.cgroups == nil && box.Transient(d.noGroup) {
		d.cgroups, d.noGroup = d.source.find()
	}
	return d.cgroups, d.noGroup
}

// groupSource is where cgroups come from: this machine, except in tests.
type groupSource struct {
	unifiedBounds func() (bool, error)
	enterScope    func(ctx context.Context) error
	find          func() (*cgroups, error)
}

func machineGroups(log *slog.Logger) groupSource {
	return groupSource{
		unifiedBounds: unifiedBounds,
		enterScope: func(ctx context.Context) error {
			return enterScope(ctx, filepath.Join("/run/user", strconv.Itoa(os.Geteuid())))
		},
		find: func() (*cgroups, error) { return findCgroups(log) },
	}
}

// askForGroups asks the user's systemd for cgroups if there are none, once. It fails if a shortage prevents the
// request; then the next call asks.
func (d *Driver) askForGroups(ctx context.Context) error {
	d.grouping.Lock()
	defer d.grouping.Unlock()
	if d.cgroups != nil || d.asked {
		return nil
	}
	ruled, err := d.source.unifiedBounds()
	if box.Transient(err) {
		return err
	}
	if ruled { // systemd manages the cgroups of version 2
		asked := d.source.enterScope(context.WithoutCancel(ctx))
		groups, err := d.source.find() // Whatever systemd said: another driver of this process may have asked before.
		switch {
		case err == nil:
			d.cgroups, d.noGroup = groups, nil
		case box.Transient(asked):
			return asked
		default:
			d.noGroup = errors.Join(err, asked)
		}
	}
	d.asked = true
	return nil
}

// Name is `local`.
func (d *Driver) Name() string { return "local" }

// Connect waits for the guest of a box.
func (d *Driver) Connect(ctx context.Context, id string) (net.Conn, error) {
	return d.boxes.Connect(ctx, id)
}

// find looks for the first process of a box.
func (d *Driver) find(_ context.Context, id string) (admit func(pid int) bool, err error) {
	rec, err := boxstore.Read[record](d.boxes, id)
	if errors.Is(err, boxstore.ErrNoRecord) {
		return nil, driver.Lost(id, "")
	}
	if err != nil {
		return nil, err
	}
	alive, err := rec.alive()
	if err != nil {
		return nil, err
	}
	if !alive {
		d.log.Warn("the guest of a box has ended", "box", id, "words", lastWords(guestLog(d.boxes.Folder(id))))
		return nil, driver.Lost(id, d.ended(rec))
	}
	return rec.isGuest, nil
}

// Destroy kills the box's first process, and with it all others, and removes what is left of the box.
func (d *Driver) Destroy(ctx context.Context, id string) error { return d.boxes.Destroy(ctx, id) }

// end kills what runs in a box and removes its cgroups.
func (d *Driver) end(ctx context.Context, id string) error {
	rec, err := boxstore.Read[record](d.boxes, id)
	if errors.Is(err, boxstore.ErrNoRecord) {
		rec, err = &record{Record: boxstore.Record{ID: id}}, nil // nothing runs in it
		if groups, _ := d.groups(); groups != nil {
			rec.Cgroups = groups.named(id)
		}
	}
	if err != nil {
		return err
	}
	if err := rec.kill(ctx); err != nil {
		return err
	}
	return d.removeGroups(ctx, rec)
}

// List reads the records of an owner's boxes.
func (d *Driver) List(_ context.Context, owner string) ([]driver.Observed, error) {
	return d.boxes.List(owner, func(id string) (alive bool, ended string, err error) {
		rec, err := boxstore.Read[record](d.boxes, id)
		if err == nil {
			alive, err = rec.alive()
		}
		if err != nil || alive {
			return alive, "", err
		}
		return false, d.ended(rec), nil
	})
}

// ended returns why a box has ended, if its cgroups still know.
func (d *Driver) ended(rec *record) string {
	if groups, _ := d.groups(); groups != nil && groups.ranOut(rec.Cgroups) {
		return driver.OutOfMemory
	}
	return ""
}

// Close stops listening for guests. They wait for the next process that listens.
func (d *Driver) Close() error {
	d.boxes.Close()
	return nil
}

// removeGroups removes the cgroups of a box. If this process has no cgroups, a process that has them does it later.
func (d *Driver) removeGroups(ctx context.Context, rec *record) error {
	groups, _ := d.groups()
	if groups == nil || len(rec.Cgroups) == 0 {
		return nil
	}
	return groups.remove(ctx, rec.Cgroups)
}

// mapsAll reports whether this process can map any user of the machine into a namespace.
func mapsAll() (bool, error) {
	data, err := os.ReadFile("/proc/self/uid_map")
	var inside, outside, count uint64
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return false, fmt.Errorf("find the users that boxes can have: %w", err)
	}
	_, err = fmt.Sscan(string(data), &inside, &outside, &count)
	return err == nil && inside == 0 && count > firstRange+ranges*rangeSize, nil
}
