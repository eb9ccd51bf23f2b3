package driver

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"time"

	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// ValidID keeps the ids of boxes fit for names of files and containers.
func ValidID(id string) bool {
	for _, c := range id {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && (c < 'A' || c > 'Z') && c != '-' {
			return false
		}
	}
	return id != "" && id[0] != '-' && len(id) <= 100
}

// Lost is the error of a box that is gone.
func Lost(id string) error {
	return rpcerr.SandboxLost(id, "gone", "the box %s is gone", id)
}

// Measure makes a small box, throws it away and tells what held it. A creation that fails for one of these reasons is what the
// machine lacks; any other is a fault of the measurement.
func Measure(ctx context.Context, d Driver, lacks ...errorsv1.ErrorReason) (Capabilities, error) {
	id := "probe-" + strings.ToLower(rand.Text())
	report, err := d.Create(ctx, Spec{
		ID: id, Owner: id, Deadline: time.Now().Add(time.Minute), OrphanTimeout: time.Minute, Limits: Limits{MemoryBytes: 64 << 20, PIDs: 16},
	})
	if err == nil {
		return Capabilities{Isolation: report.Isolation}, d.Destroy(context.WithoutCancel(ctx), id)
	}
	if slices.Contains(lacks, rpcerr.Reason(err)) {
		return Capabilities{Problem: err}, nil
	}
	return Capabilities{}, fmt.Errorf("make a box to measure the driver: %w", err)
}
