// Package docker makes boxes as containers of a Docker Engine on this machine, each from an image.
//
// The engine only creates, bounds and removes containers. The guest is mounted into each container, is its first
// process instead of the image's entry point, and dials out over a socket in a second mounted folder. Commands and
// files use that connection, not the engine. The image decides where commands start, as which user, and with which
// variables.
//
// A box is a container, found by its name and its labels, and a folder with its record.
package docker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path"
	"path/filepath"

	"github.com/evalfleet/evalfleet/pkg/freespace"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/driver"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/driver/boxstore"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/guest"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/guestbinary"
)

// Deps are the driver's dependencies.
type Deps struct {
	// Dir has the boxes' records and the folders that are mounted; it is created. The engine must see it under the same
	// path.
	Dir string
	// GuestPath is the guest program on this machine.
	GuestPath string
	// Space is the free disk space below which no box is made, on the engine's disk too; nil for no floor.
	Space  *freespace.Floor
	Logger *slog.Logger
}

// Driver is the docker driver.
type Driver struct {
	cfg    Config
	boxes  *boxstore.Store
	guest  *guestbinary.Program
	folder string // mounted at /.evalfleet as one mount, so that no process in a container can replace it
	log    *slog.Logger
	space  *freespace.Floor
	engine *engine
	images *images
	sees   func(first int) (bool, error) // reports whether the open files of containers are visible here
	quota  quotaState
	// guests is the state of the guests that were waited for.
	guests guestState
}

// New returns the driver. It does not contact the engine yet.
func New(cfg Config, deps Deps) (*Driver, error) {
	cfg.SetDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if deps.Logger == nil {
		deps.Logger = slog.New(slog.DiscardHandler)
	}
	d := &Driver{cfg: cfg, log: deps.Logger, space: deps.Space, sees: seesProcesses, guests: guestState{patience: comeTimeout}}
	var err error
	if d.boxes, err = boxstore.Open(boxstore.Config{Dir: deps.Dir, Find: d.find, End: d.end, Logger: deps.Logger}); err != nil {
		return nil, err
	}
	if d.guest, err = guestbinary.Find(deps.GuestPath, d.boxes.Dir()); err != nil {
		return nil, err
	}
	if d.folder, err = makeFolder(d.boxes.Dir()); err != nil {
		return nil, err
	}
	if d.engine, err = newEngine(cfg.Host); err != nil {
		return nil, err
	}
	d.images = newImages(cfg, d.engine, d.log)
	return d, nil
}

// makeFolder creates a folder with an entry for each mount in it, and returns its path. No box can have its name.
func makeFolder(dir string) (string, error) {
	folder := filepath.Join(dir, ".evalfleet")
	program := filepath.Join(folder, path.Base(guest.ContainerProgram))
	err := os.MkdirAll(filepath.Join(folder, path.Base(guest.ContainerFolder)), 0o755)
	if err == nil {
		err = os.WriteFile(program, nil, 0o644)
	}
	if err != nil {
		return "", fmt.Errorf("make the folder that is mounted into containers: %w", err)
	}
	return folder, nil
}

// Name returns `docker`.
func (d *Driver) Name() string { return "docker" }

// Connect waits for the guest of a box.
func (d *Driver) Connect(ctx context.Context, id string) (net.Conn, error) {
	return d.boxes.Connect(ctx, id)
}

// find finds the container of a box.
func (d *Driver) find(ctx context.Context, id string) (admit func(pid int) bool, err error) {
	rec, err := boxstore.Read[record](d.boxes, id)
	if errors.Is(err, boxstore.ErrNoRecord) {
		return nil, driver.Lost(id, "")
	}
	if err != nil {
		return nil, err
	}
	found, err := d.engine.inspect(ctx, id)
	if err != nil {
		return nil, err
	}
	if !found.is(rec) {
		return nil, driver.Lost(id, d.ended(ctx, rec))
	}
	return isGuest(found.pid), nil
}

// ended returns why a box has ended, if the engine still knows.
func (d *Driver) ended(ctx context.Context, rec *record) string {
	if d.engine.ranOut(ctx, rec.Container) {
		return driver.OutOfMemory
	}
	return ""
}

// isGuest recognizes the first process of a container by its id. If its id cannot be seen from here, because this
// program is in a container too, the guest is recognized by the folder alone, which no command can enter.
func isGuest(first int) func(int) bool {
	return func(pid int) bool { return pid == first || pid == 0 }
}

// Destroy removes the container with all processes in it, and the box's folder.
func (d *Driver) Destroy(ctx context.Context, id string) error { return d.boxes.Destroy(ctx, id) }

// end removes the container of a box.
func (d *Driver) end(ctx context.Context, id string) error {
	_, err := os.Stat(d.boxes.Folder(id))
	none := errors.Is(err, os.ErrNotExist)
	if err := d.engine.remove(ctx, id); err != nil && !(none && isAway(err)) { // it was never made
		return err
	}
	return nil
}

// List finds an owner's boxes by their records and by the labels of containers.
func (d *Driver) List(ctx context.Context, owner string) ([]driver.Observed, error) {
	containers, away := d.engine.list(ctx, owner)
	out, err := d.boxes.List(owner, func(id string) (alive bool, ended string, err error) {
		rec, err := boxstore.Read[record](d.boxes, id)
		if err != nil || containers[id].is(rec) {
			return err == nil, "", err
		}
		return false, d.ended(ctx, rec), nil
	})
	if err != nil {
		return nil, err
	}
	if isAway(away) && len(out) == 0 {
		return nil, nil // nothing was ever made
	}
	for _, o := range out {
		delete(containers, o.ID)
	}
	d.endWhatIsOver(ctx, owner, out)
	for id, c := range containers {
		out = append(out, driver.Observed{ID: id, Created: c.created})
	}
	return out, away
}

// endWhatIsOver marks the boxes that have written more than allowed, if the engine does not bound that.
func (d *Driver) endWhatIsOver(ctx context.Context, owner string, observed []driver.Observed) {
	bounds, containers := map[string]int64{}, map[string]bool{}
	for _, o := range observed {
		if rec, err := boxstore.Read[record](d.boxes, o.ID); err == nil && o.Alive && rec.DiskBytes > 0 {
			bounds[o.ID] = rec.DiskBytes
			containers[rec.Container] = true
		}
	}
	if len(bounds) == 0 {
		return
	}
	open, err := unlinked(ctx, containers, mostLinks)
	var (
		written map[string]writing
		late    []string
	)
	if err == nil {
		written, late, err = d.engine.written(ctx, owner, open, bounds)
	}
	if err != nil {
		d.log.Warn("cannot tell what containers have written; trying again later", "error", err)
		return
	}
	if len(late) > 0 {
		d.log.Warn("the files of some containers were not counted in time; what they have written is measured without them until they are", "sandboxes", late)
	}
	for i, o := range observed {
		wrote, most := written[o.ID], bounds[o.ID]
		switch {
		case most == 0:
		case wrote.unmeasured:
			observed[i].Alive = false
			observed[i].Ended = fmt.Sprintf("what it wrote cannot be measured: its processes have over %d files open or mapped, it takes over %v to look at them, or folders are nested over %d deep", mostLinks, searchTime, deepestEntry)
		case wrote.bytes > most:
			observed[i].Alive = false
			observed[i].Ended = fmt.Sprintf("its disk is full: it wrote %d MiB, and it may have %d MiB", wrote.bytes>>20, most>>20)
		}
	}
}

// Close stops listening for guests. They wait for the next process that listens.
func (d *Driver) Close() error {
	d.images.close()
	d.boxes.Close()
	return d.engine.close()
}
