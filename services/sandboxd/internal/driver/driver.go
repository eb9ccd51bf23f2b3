// Package driver is the port behind which sandboxes are made. A driver makes boxes and yields one stream of bytes to
// the guest in each; what happens over that stream is the same for all drivers and none of their business.
package driver

import (
	"context"
	"net"
	"time"

	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// Driver makes boxes of one kind. Methods are safe for concurrent use.
type Driver interface {
	// Name is how requests name the driver, such as `local`.
	Name() string
	// Probe measures what the driver can do on this machine, by making a box and throwing it away where needed. An
	// error means that the measurement failed; a machine that cannot isolate is a Capabilities with a Problem.
	Probe(ctx context.Context) (Capabilities, error)
	// Check reports what Create would refuse, as far as that is known without making a box: an engine that does not
	// answer, an image that is not there and will not be fetched, a specification that cannot be. What only a box can
	// show is left to Probe.
	Check(ctx context.Context, spec Spec) error
	// Create makes a box, or gives the one of the same Spec.ID. It fails with ISOLATION_UNAVAILABLE where a part of the
	// isolation is missing and the spec does not allow that; nothing is left behind then.
	Create(ctx context.Context, spec Spec) (Report, error)
	// Connect waits for the next connection of the guest in that box. It fails with SANDBOX_LOST when the box is gone.
	// The guest keeps one connection at a time and comes back when that is closed.
	Connect(ctx context.Context, id string) (net.Conn, error)
	// Destroy kills what runs in a box and removes it. A box that is gone is no error.
	Destroy(ctx context.Context, id string) error
	// List gives all boxes of an owner, whoever made them and however old they are.
	List(ctx context.Context, owner string) ([]Observed, error)
	// Close frees what the driver holds in this process. Boxes live on.
	Close() error
}

// Spec says what box to make.
type Spec struct {
	// ID is unique among the driver's boxes: letters, digits and dashes.
	ID string
	// Owner is the installation that the box belongs to; List finds it again by that.
	Owner string
	// Labels are kept with the box, for people.
	Labels map[string]string
	// Image is what the box is made from; empty takes the driver's. Drivers without images ignore it.
	Image string
	// Deadline is when the guest ends the box, whoever else is alive.
	Deadline time.Time
	// OrphanTimeout is how long the guest lives without a host.
	OrphanTimeout time.Duration
	Limits        Limits
	// Workdir is where commands start; empty takes the driver's, or that of the image.
	Workdir string
	// User is who commands run as; empty takes the driver's, or that of the image.
	User string
	// AllowUnisolated makes the box although a part of the isolation is missing.
	AllowUnisolated bool
}

// Limits bounds a box. Zero members are unbounded.
type Limits struct {
	MemoryBytes   int64
	PIDs          int64
	CPUMillis     int64
	OpenFiles     int64
	FileSizeBytes int64
	DiskBytes     int64
}

// Report tells what was made.
type Report struct {
	Isolation Isolation `json:"isolation"`
	// GuestPath is the guest program's path inside the box.
	GuestPath string `json:"guest_path"`
	// Workdir is where commands start.
	Workdir string `json:"workdir"`
	// User is who commands run as.
	User string `json:"user"`
	// Env is the environment of commands that the driver decides: PATH, and HOME where that is not the user's own.
	Env map[string]string `json:"env"`
}

// Isolation says what holds a box.
type Isolation struct {
	// Parts isolate: `user namespace`, `cgroup memory`, …
	Parts []string `json:"parts,omitempty"`
	// Weaker names parts that are missing or replaced, and by what.
	Weaker []string `json:"weaker,omitempty"`
	// Unisolated tells that a needed part is missing.
	Unisolated bool `json:"unisolated,omitempty"`
}

// Capabilities are what a driver was measured to do.
type Capabilities struct {
	Isolation Isolation
	// Problem says what is missing and what to do; nil where nothing is. It has a reason: with IMAGE_UNAVAILABLE it is
	// only the driver's own image.
	Problem error
}

// Available tells that isolated boxes can be made, if only from an image that their specification names.
func (c Capabilities) Available() bool {
	return c.Problem == nil || rpcerr.Is(c.Problem, errorsv1.ErrorReason_ERROR_REASON_IMAGE_UNAVAILABLE)
}

// Observed is a box as the driver finds it.
type Observed struct {
	ID      string
	Labels  map[string]string
	Created time.Time
	// Alive tells that its guest runs and may go on.
	Alive bool
	// Ended says why it is not alive, where the driver knows: what it may use is used up. OutOfMemory is one of the
	// reasons.
	Ended  string
	Report Report
}
