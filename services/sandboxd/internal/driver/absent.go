package driver

import (
	"context"
	"net"

	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// Absent is a driver that could not be set up: it returns the cause to callers that want a box, so that the service can
// run without it.
type Absent struct {
	// As is the driver's name.
	As string
	// Cause is the reason why the driver could not be set up, with the remedy.
	Cause error
}

// Name returns the name of the absent driver.
func (a Absent) Name() string { return a.As }

// Probe returns the cause as the problem.
func (a Absent) Probe(context.Context) (Capabilities, error) {
	return Capabilities{Problem: a.err()}, nil
}

// Check fails with ISOLATION_UNAVAILABLE.
func (a Absent) Check(context.Context, Spec) error { return a.err() }

// Create fails with ISOLATION_UNAVAILABLE.
func (a Absent) Create(context.Context, Spec) (Report, error) { return Report{}, a.err() }

// Connect fails with ISOLATION_UNAVAILABLE.
func (a Absent) Connect(context.Context, string) (net.Conn, error) { return nil, a.err() }

// Destroy fails with ISOLATION_UNAVAILABLE: there may be a box that only the driver could find.
func (a Absent) Destroy(context.Context, string) error { return a.err() }

// List fails with ISOLATION_UNAVAILABLE.
func (a Absent) List(context.Context, string) ([]Observed, error) { return nil, a.err() }

// Close does nothing.
func (a Absent) Close() error { return nil }

func (a Absent) err() error {
	return rpcerr.IsolationUnavailable("driver "+a.As, "the driver %s cannot be used: %w", a.As, a.Cause)
}
