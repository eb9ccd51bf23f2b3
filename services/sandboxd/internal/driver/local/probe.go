package local

import (
	"context"

	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/driver"
)

// Check finds nothing: what this machine lacks, a box tells.
func (d *Driver) Check(context.Context, driver.Spec) error { return nil }

// Probe makes a small box and throws it away.
func (d *Driver) Probe(ctx context.Context) (driver.Capabilities, error) {
	return driver.Measure(ctx, d, errorsv1.ErrorReason_ERROR_REASON_ISOLATION_UNAVAILABLE)
}
