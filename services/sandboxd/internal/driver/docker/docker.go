// Package docker makes boxes as containers of a Docker Engine on this machine, each from an image.
//
// The engine only makes, bounds and removes containers: the guest is mounted into each, is its first process whatever
// the image would start, and dials out over a socket in a second mounted folder. Commands and files go that way; the
// engine is not asked again. What an image decides is where commands start, as whom, and with which variables.
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

// Deps are what the program hands in.
type Deps struct {
	// Dir holds the boxes' records and the folders that are mounted; it is made. The engine must see it under the same
	// path.
	Dir string
	// GuestPath is the guest program on this machine.
	GuestPath string
	// Space is the free disk space below which no box is made, where the engine keeps containers too; nil for no floor.
	Space  *freespace.Floor
	Logger *slog.Logger
}

// Driver is the docker driver.
type Driver struct {
	cfg    Config
	boxes  *boxstore.Store
	guest  string // our own copy of the guest program
	folder string // what is mounted at /.evalfleet, so that nobody in a container can move that
	log    *slog.Logger
	space  *freespace.Floor
	engine *engine
	images *images
	sees   func(first int) (bool, error) // whether the files that are open in containers are seen from here
	quota  quotaState
	// guests is what is known of guests that were waited for.
	guests guestState
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
	d := &Driver{cfg: cfg, log: deps.Logger, space: deps.Space, sees: seesProcesses, guests: guestState{patience: comeTimeout}}
	var err error
	if d.boxes, err = boxstore.Open(boxstore.Config{Dir: deps.Dir, Find: d.find, End: d.end, Logger: deps.Logger}); err != nil {
		return nil, err
	}
	if d.guest, err = guestbinary.Stage(deps.GuestPath, d.boxes.Dir()); err != nil {
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

// makeFolder makes a folder with an entry for each of what is mounted in it, and gives its path. Its name is that of no
// box.
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

// Name is `docker`.
func (d *Driver) Name() string { return "docker" }

// Connect waits for the guest of a box.
func (d *Driver) Connect(ctx context.Context, id string) (net.Conn, error) {
	return d.boxes.Connect(ctx, id)
}

// find looks for the container of a box.
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

// ended says why a box has ended, where the engine still knows.
func (d *Driver) ended(ctx context.Context, rec *record) string {
	if d.engine.ranOut(ctx, rec.Container) {
		return driver.OutOfMemory
	}
	return ""
}

// isGuest recognizes the first process of a container by its id. One that cannot be seen from here, because this
// program is in a container too, is known by the folder alone, which no command can enter.
func isGuest(first int) func(int) bool {
	return func(pid int) bool { return pid == first || pid == 0 }
}

// Destroy removes the container with all that runs in it, and what is kept of it.
func (d *Driver) Destroy(ctx context.Context, id string) error { return d.boxes.Destroy(ctx, id) }

// end removes the container of a box.
func (d *Driver) end(ctx context.Context, id string) error {
	_, err := os.Stat(d.boxes.Folder(id))
	none := errors.Is(err, os.ErrNotExist)
	if err := d.engine.remove(ctx, id); err != nil && !(none && isAway(err)) { // of what was never made there is no container
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

// endWhatIsOver marks the boxes that have written more than they may, where the engine does not bound that.
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

// Close stops listening for guests; they wait for the next one who does.
func (d *Driver) Close() error {
	d.images.close()
	d.boxes.Close()
	return d.engine.close()
}
