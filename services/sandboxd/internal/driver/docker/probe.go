package docker

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"time"

	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/driver"
)

// Probe makes a small box of the configured image and throws it away.
func (d *Driver) Probe(ctx context.Context) (driver.Capabilities, error) {
	id := "probe-" + strings.ToLower(rand.Text())
	report, err := d.Create(ctx, driver.Spec{
		ID: id, Owner: id, Deadline: time.Now().Add(time.Minute), OrphanTimeout: time.Minute, Limits: driver.Limits{MemoryBytes: 64 << 20, PIDs: 16},
	})
	switch rpcerr.Reason(err) { //nolint:exhaustive // All others are faults of the measurement.
	case errorsv1.ErrorReason_ERROR_REASON_ISOLATION_UNAVAILABLE, errorsv1.ErrorReason_ERROR_REASON_ENGINE_UNAVAILABLE,
		errorsv1.ErrorReason_ERROR_REASON_IMAGE_UNAVAILABLE:
		return driver.Capabilities{Problem: err.Error()}, nil
	}
	if err != nil {
		return driver.Capabilities{}, fmt.Errorf("make a box to measure the driver: %w", err)
	}
	return driver.Capabilities{Isolation: report.Isolation}, d.Destroy(context.WithoutCancel(ctx), id)
}
