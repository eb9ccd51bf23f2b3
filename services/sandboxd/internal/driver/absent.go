package driver

import (
	"context"
	"net"

	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// Absent is a driver that could not be set up: it says so to whoever wants a box, and lets everything else go on.
type Absent struct {
	// As is the driver's name.
	As string
	// Cause says why it could not be set up, and what to do.
	Cause error
}

// Name is the name of the driver that is absent.
func (a Absent) Name() string { return a.As }

// Probe tells the cause.
func (a Absent) Probe(context.Context) (Capabilities, error) {
	return Capabilities{Problem: a.err()}, nil
}

// Check fails with ISOLATION_UNAVAILABLE.
func (a Absent) Check(context.Context, Spec) error { return a.err() }

// Create fails with ISOLATION_UNAVAILABLE.
func (a Absent) Create(context.Context, Spec) (Report, error) { return Report{}, a.err() }

// Connect fails with ISOLATION_UNAVAILABLE.
func (a Absent) Connect(context.Context, string) (net.Conn, error) { return nil, a.err() }

// Destroy fails with ISOLATION_UNAVAILABLE: a box may be there that only the driver could find.
func (a Absent) Destroy(context.Context, string) error { return a.err() }

// List fails with ISOLATION_UNAVAILABLE.
func (a Absent) List(context.Context, string) ([]Observed, error) { return nil, a.err() }

// Close does nothing.
func (a Absent) Close() error { return nil }

func (a Absent) err() error {
	return rpcerr.IsolationUnavailable("driver "+a.As, "the driver %s cannot be used: %w", a.As, a.Cause)
}
