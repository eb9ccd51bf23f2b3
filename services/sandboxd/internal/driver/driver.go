// Package driver is the interface between sandboxd and the mechanisms that make sandboxes. A driver makes boxes and
// provides one byte stream to the guest in each; the protocol on that stream is the same for all drivers and does not
// concern them.
package driver

import (
	"context"
	"net"
	"time"

	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// Driver makes boxes of one kind. Its methods are safe for concurrent use.
type Driver interface {
	// Name returns the name by which requests select the driver, such as `local`.
	Name() string
	// Probe measures the driver's capabilities on this machine, if necessary by making a box and destroying it. An
	// error means that the measurement failed; a machine that cannot isolate is a Capabilities with a Problem.
	Probe(ctx context.Context) (Capabilities, error)
	// Check returns the error with which Create would fail, as far as that is known without making a box: an engine
	// that does not answer, an image that is missing and will not be pulled, an invalid specification. Faults that only
	// a box can show are left to Probe.
	Check(ctx context.Context, spec Spec) error
	// Create makes a box, or returns the one of the same Spec.ID. It fails with ISOLATION_UNAVAILABLE if a part of the
	// isolation is missing and the spec does not allow that; then it leaves nothing behind.
	Create(ctx context.Context, spec Spec) (Report, error)
	// Connect waits for the next connection of the guest in that box. It fails with SANDBOX_LOST if the box no longer
	// exists. The guest has one connection at a time and dials again when that is closed.
	Connect(ctx context.Context, id string) (net.Conn, error)
	// Destroy kills all processes in a box and removes it. A box that no longer exists is no error.
	Destroy(ctx context.Context, id string) error
	// List returns all boxes of an owner, whichever process made them and however old they are.
	List(ctx context.Context, owner string) ([]Observed, error)
	// Close releases the driver's resources in this process. Boxes continue to run.
	Close() error
}

// Spec describes the box to make.
type Spec struct {
	// ID is unique among the driver's boxes: letters, digits and dashes.
	ID string
	// Owner is the installation that the box belongs to; List finds the box by it.
	Owner string
	// Labels are stored with the box, for people.
	Labels map[string]string
	// Image is the image of the box; empty means the driver's default. Drivers without images ignore it.
	Image string
	// Deadline is when the guest terminates the box, even if its host is alive.
	Deadline time.Time
	// OrphanTimeout is how long the guest lives without a host.
	OrphanTimeout time.Duration
	Limits        Limits
	// Workdir is where commands start; empty means the default of the driver or of the image.
	Workdir string
	// User is the user that commands run as; empty means the default of the driver or of the image.
	User string
	// AllowUnisolated makes the box even if a part of the isolation is missing.
	AllowUnisolated bool
}

// Limits bounds a box. A zero member means no bound.
type Limits struct {
	MemoryBytes   int64
	PIDs          int64
	CPUMillis     int64
	OpenFiles     int64
	FileSizeBytes int64
	DiskBytes     int64
}

// Report describes the box that was made.
type Report struct {
	Isolation Isolation `json:"isolation"`
	// GuestPath is the guest program's path inside the box.
	GuestPath string `json:"guest_path"`
	// Workdir is where commands start.
	Workdir string `json:"workdir"`
	// User is the user that commands run as.
	User string `json:"user"`
	// Env is the driver's part of the environment of commands: PATH, and HOME if that is not the user's own.
	Env map[string]string `json:"env"`
}

// Isolation describes the isolation of a box.
type Isolation struct {
	// Parts are the effective mechanisms: `user namespace`, `cgroup memory`, …
	Parts []string `json:"parts,omitempty"`
	// Weaker names parts that are missing or replaced, and by what.
	Weaker []string `json:"weaker,omitempty"`
	// Unisolated reports that a required part is missing.
	Unisolated bool `json:"unisolated,omitempty"`
}

// Capabilities are the measured capabilities of a driver.
type Capabilities struct {
	Isolation Isolation
	// Problem is what is missing, with the remedy; nil if nothing is. It has a reason: with IMAGE_UNAVAILABLE only the
	// driver's own image is missing.
	Problem error
}

// Available reports whether isolated boxes can be made, if only from an image that their specification names.
func (c Capabilities) Available() bool {
	return c.Problem == nil || rpcerr.Is(c.Problem, errorsv1.ErrorReason_ERROR_REASON_IMAGE_UNAVAILABLE)
}

// Observed is the state of a box as the driver finds it.
type Observed struct {
	ID      string
	Labels  map[string]string
	Created time.Time
	// Alive reports that the box's guest runs and may continue.
	Alive bool
	// Ended is why the box is not alive, if the driver knows: a resource is used up. OutOfMemory is one of the reasons.
	Ended  string
	Report Report
}
