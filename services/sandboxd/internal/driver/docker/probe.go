package docker

import (
	"context"

	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/driver"
)

// Check queries the engine's capabilities, and looks up the image.
func (d *Driver) Check(ctx context.Context, spec driver.Spec) error {
	if err := check(spec); err != nil {
		return err
	}
	can, err := d.engine.ready(ctx)
	if err != nil {
		return err
	}
	image, err := d.images.check(ctx, spec.Image)
	if err != nil {
		return err
	}
	return d.isolates(spec, can, image)
}

// Probe makes a small box of the configured image and destroys it.
func (d *Driver) Probe(ctx context.Context) (driver.Capabilities, error) {
	return driver.Measure(ctx, d, errorsv1.ErrorReason_ERROR_REASON_ISOLATION_UNAVAILABLE,
		errorsv1.ErrorReason_ERROR_REASON_ENGINE_UNAVAILABLE, errorsv1.ErrorReason_ERROR_REASON_ENGINE_UNUSABLE,
		errorsv1.ErrorReason_ERROR_REASON_IMAGE_UNAVAILABLE)
}
