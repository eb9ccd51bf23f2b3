package lifecycle

import (
	"context"
	"time"

	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/driver"
)

const (
	// measureTimeout bounds one measurement of a driver: a call that lists drivers does not wait for an engine that
	// hangs.
	measureTimeout = 15 * time.Second
	// measureAgain is how long it is believed that something is missing: an engine may be started and an image be built
	// at any time.
	measureAgain = time.Second
)

// gauge is what was measured of a driver. What works is measured once in the life of the process.
type gauge struct {
	driver driver.Driver
	turn   chan struct{} // held by who measures; the others wait for what comes of it
	at     time.Time     // of the last measurement; zero: none yet
	caps   driver.Capabilities
	err    error
}

func newGauge(d driver.Driver) *gauge { return &gauge{driver: d, turn: make(chan struct{}, 1)} }

func (g *gauge) known() bool {
	if g.at.IsZero() {
		return false
	}
	return g.err == nil && g.caps.Problem == nil || time.Since(g.at) < measureAgain
}

func (g *gauge) read(ctx context.Context) (driver.Capabilities, error) {
	select {
	case g.turn <- struct{}{}:
		defer func() { <-g.turn }()
	case <-ctx.Done():
		return driver.Capabilities{}, ctx.Err()
	}
	if g.known() {
		return g.caps, g.err
	}
	within, cancel := context.WithTimeout(ctx, measureTimeout)
	defer cancel()
	caps, err := g.driver.Probe(within)
	if ctx.Err() != nil {
		return driver.Capabilities{}, ctx.Err() // who asked has left, which says nothing of the driver
	}
	g.caps, g.err, g.at = caps, err, time.Now()
	return caps, err
}

// Measure reports what a driver can do. What is missing is measured again when it is asked for later, and drivers do
// not wait for each other.
func (s *Sandboxes) Measure(ctx context.Context, name string) (driver.Capabilities, error) {
	g, ok := s.gauges[name]
	if !ok {
		return driver.Capabilities{}, s.unknown(name)
	}
	return g.read(ctx)
}

// Check refuses a specification that Create would refuse now, as far as that is known without making its box, and gives
// it with its defaults, without the content of its files.
func (s *Sandboxes) Check(ctx context.Context, asked *sandboxv1.SandboxSpec) (*sandboxv1.SandboxSpec, error) {
	spec, err := s.complete(asked)
	if err != nil {
		return nil, err
	}
	if err := s.drivers[spec.GetDriver()].Check(ctx, s.boxSpec(spec)); err != nil {
		return nil, err
	}
	caps, err := s.Measure(ctx, spec.GetDriver())
	switch {
	case err != nil:
		return nil, rpcerr.Wrap(err, "measure the driver %s", spec.GetDriver())
	case caps.Available():
		return remembered(spec), nil
	case spec.GetAllowUnisolated() && rpcerr.Is(caps.Problem, errorsv1.ErrorReason_ERROR_REASON_ISOLATION_UNAVAILABLE):
		return remembered(spec), nil
	}
	return nil, caps.Problem
}
