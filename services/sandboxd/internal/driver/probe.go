package driver

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

const (
	// probeOwner owns the boxes of all measurements, in all installations, so that any process can remove those that
	// another one left.
	probeOwner = "probe"
	// probePrefix is the prefix of their ids.
	probePrefix = "probe-"
	// ProbeAge is the age from which a probe is abandoned: no measurement takes so long.
	ProbeAge = 5 * time.Minute
)

// Probe returns the specification of a small box to measure a driver with.
func Probe() Spec {
	return Spec{
		ID: probePrefix + strings.ToLower(rand.Text()), Owner: probeOwner, Deadline: time.Now().Add(time.Minute), OrphanTimeout: time.Minute,
		Limits: Limits{MemoryBytes: 64 << 20, PIDs: 16},
	}
}

// IsProbe reports whether an id is that of a box for a measurement. Such a box has no record; its maker or Sweep
// removes it.
func IsProbe(id string) bool { return strings.HasPrefix(id, probePrefix) }

// Measure makes a small box, destroys it and reports its isolation. A creation that fails for one of these reasons
// shows what the machine lacks; any other failure is a fault of the measurement.
func Measure(ctx context.Context, d Driver, lacks ...errorsv1.ErrorReason) (Capabilities, error) {
	probe := Probe()
	report, err := d.Create(ctx, probe)
	if err == nil {
		return Capabilities{Isolation: report.Isolation}, d.Destroy(context.WithoutCancel(ctx), probe.ID)
	}
	if slices.Contains(lacks, rpcerr.Reason(err)) {
		return Capabilities{Problem: err}, nil
	}
	return Capabilities{}, fmt.Errorf("make a box to measure the driver: %w", err)
}

// Sweep removes the probes that are older than ProbeAge: their processes were killed while they measured.
func Sweep(ctx context.Context, d Driver) error {
	boxes, err := d.List(ctx, probeOwner)
	if err != nil {
		return err
	}
	for _, box := range boxes {
		if IsProbe(box.ID) && time.Since(box.Created) > ProbeAge {
			err = errors.Join(err, d.Destroy(ctx, box.ID))
		}
	}
	return err
}
