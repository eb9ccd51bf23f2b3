package driver

import (
	"context"
	"fmt"
	"net"
	"sync"

	"github.com/evalfleet/evalfleet/services/sandboxd/internal/guest/box"
)

// Late is a driver that could not be set up because of a shortage. The first call that finds it possible sets it up.
// Until then calls fail with SANDBOX_QUOTA or, if the set-up fails for another reason than a shortage, as those of
// [Absent].
type Late struct {
	// As is the driver's name.
	As string
	// Build sets the driver up.
	Build func() (Driver, error)

	mu    sync.Mutex
	built Driver
}

func (l *Late) get() (Driver, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.built == nil {
		built, err := l.Build()
		switch {
		case box.Transient(err):
			return nil, Shortage(fmt.Errorf("the driver %s cannot be set up: %w", l.As, err))
		case err != nil:
			return Absent{As: l.As, Cause: err}, nil
		}
		l.built = built
	}
	return l.built, nil
}

// Name is the name of the driver.
func (l *Late) Name() string { return l.As }

// Probe measures the driver.
func (l *Late) Probe(ctx context.Context) (Capabilities, error) {
	d, err := l.get()
	if err != nil {
		return Capabilities{}, err
	}
	return d.Probe(ctx)
}

// Check reports what Create would refuse.
func (l *Late) Check(ctx context.Context, spec Spec) error {
	d, err := l.get()
	if err != nil {
		return err
	}
	return d.Check(ctx, spec)
}

// Create makes a box.
func (l *Late) Create(ctx context.Context, spec Spec) (Report, error) {
	d, err := l.get()
	if err != nil {
		return Report{}, err
	}
	return d.Create(ctx, spec)
}

// Connect waits for the guest of a box.
func (l *Late) Connect(ctx context.Context, id string) (net.Conn, error) {
	d, err := l.get()
	if err != nil {
		return nil, err
	}
	return d.Connect(ctx, id)
}

// Destroy ends a box.
func (l *Late) Destroy(ctx context.Context, id string) error {
	d, err := l.get()
	if err != nil {
		return err
	}
	return d.Destroy(ctx, id)
}

// List returns the boxes of an owner.
func (l *Late) List(ctx context.Context, owner string) ([]Observed, error) {
	d, err := l.get()
	if err != nil {
		return nil, err
	}
	return d.List(ctx, owner)
}

// Close closes the driver, if it was set up.
func (l *Late) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.built == nil {
		return nil
	}
	return l.built.Close()
}
