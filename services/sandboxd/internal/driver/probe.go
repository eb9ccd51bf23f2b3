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
	// probeOwner owns the boxes of all measurements, whichever installation makes them, so that any can remove what
	// another left.
	probeOwner = "probe"
	// probePrefix begins their ids.
	probePrefix = "probe-"
	// ProbeAge is how old a probe is that nobody measures with any more.
	ProbeAge = 5 * time.Minute
)

// Probe is the specification of a small box to measure a driver with.
func Probe() Spec {
	return Spec{
		ID: probePrefix + strings.ToLower(rand.Text()), Owner: probeOwner, Deadline: time.Now().Add(time.Minute), OrphanTimeout: time.Minute,
		Limits: Limits{MemoryBytes: 64 << 20, PIDs: 16},
	}
}

// IsProbe recognizes the id of a box that a driver is measured with. It has no record, and is removed by who made it or
// by Sweep.
func IsProbe(id string) bool { return strings.HasPrefix(id, probePrefix) }

// Measure makes a small box, throws it away and reports what held it. A creation that fails for one of these reasons is
// what the machine lacks; any other is a fault of the measurement.
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

// Sweep removes the probes of processes that were killed while they measured: those that are older than ProbeAge.
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
