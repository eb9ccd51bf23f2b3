package local

import (
	"context"

	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/driver"
)

// Check returns nil: only a box shows what this machine lacks.
func (d *Driver) Check(context.Context, driver.Spec) error { return nil }

// Probe makes a small box and destroys it.
func (d *Driver) Probe(ctx context.Context) (driver.Capabilities, error) {
	return driver.Measure(ctx, d, errorsv1.ErrorReason_ERROR_REASON_ISOLATION_UNAVAILABLE)
}
