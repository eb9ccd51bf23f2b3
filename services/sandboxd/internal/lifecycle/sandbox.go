package lifecycle

import (
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	effectv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/effect/v1"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	"github.com/evalfleet/evalfleet/pkg/resource"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/driver"
)

// Sandbox is the record of a sandbox.
type Sandbox struct {
	Project string
	// ID is unique among all projects.
	ID string
	// Host is where its box is; only the process of that host acts on it.
	Host string
	// Spec is what it was made from, with defaults filled in and without the content of files.
	Spec   *sandboxv1.SandboxSpec
	State  State
	Reason string
	// Report is what the driver made; empty before Ready.
	Report driver.Report
	// BootID is its guest's; empty before Ready.
	BootID string
	// Timing is where the time of its creation went; nil before Ready.
	Timing  *effectv1.Timing
	Created time.Time
	// Lease is how long the sandbox lives from each renewal; LeaseEnd is when the current lease ends.
	Lease    time.Duration
	LeaseEnd time.Time
	// Deadline is when the sandbox ends in any case.
	Deadline time.Time
	// Changed is when it entered its state.
	Changed time.Time
	// Revision counts its changes, from 1.
	Revision int64
}

// Name is the resource's name.
func (s *Sandbox) Name() string { return resource.Format(s.Project, "sandboxes", s.ID) }

// Has reports whether it bears all these labels.
func (s *Sandbox) Has(labels map[string]string) bool {
	have := s.Spec.GetLabels()
	return !slices.ContainsFunc(slices.Collect(maps.Keys(labels)), func(k string) bool {
		v, ok := have[k]
		return !ok || v != labels[k]
	})
}

// same reports whether two records of a sandbox are those of one change.
func (s *Sandbox) same(o *Sandbox) bool {
	return s.Revision == o.Revision && s.Host == o.Host && s.State == o.State && s.Changed.Equal(o.Changed) && s.LeaseEnd.Equal(o.LeaseEnd)
}

// clone returns a copy that shares no mutable data.
func (s *Sandbox) clone() *Sandbox {
	c := *s
	c.Spec = proto.CloneOf(s.Spec)
	return &c
}
