package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	"github.com/evalfleet/evalfleet/bench/internal/paired"
	"github.com/evalfleet/evalfleet/bench/internal/rawhttp"
	"github.com/evalfleet/evalfleet/bench/internal/report"
	"github.com/evalfleet/evalfleet/bench/internal/vendor"
)

const (
	// heldRequests are in flight at once, with bodies of heldBytes, in a measurement of full length; rehearsed are in one
	// that only proves that it runs.
	heldRequests, rehearsed = 2_000, 64
	heldBytes               = 8_000
	// heldEach is how many of them go to one model: a new model's limit of connections begins with twenty.
	heldEach = 20
	// memoryRounds are few, since each starts the programs anew.
	memoryRounds = 2
)

// heldRequest is the i-th request that the vendor holds.
func (m *middle) heldRequest(i int) []byte {
	model := fmt.Sprint(vendor.Held, "-", i/heldEach)
	if m.token.Reveal() != "" {
		model = "openai/" + model
	}
	return rawhttp.Post(m.Address, "/v1/chat/completions", m.token.Reveal(), chatBody(model, strings.Repeat("x", heldBytes)))
}

// memory measures the memory of requests in flight.
func (m *middles) memory(ctx context.Context) ([]report.Figure, error) {
	requests := heldRequests
	if m.e.budget < time.Second {
		requests = rehearsed
	}
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		return nil, err
	}
	if files.Max < 4*heldRequests {
		return nil, fmt.Errorf("%w: a process may open %d files", errCannot, files.Max)
	}
	begun := 0
	gateway := func() (*middle, error) {
		begun++
		return m.gateway(ctx, fmt.Sprint("memory-", begun))
	}
	proxy := func() (*middle, error) { return m.proxy(ctx) }
	said := strings.Repeat(texts[1].piece, texts[1].size/len(texts[1].piece))
	held := func(start func() (*middle, error)) paired.Sampler {
		return fresh(start, func(ctx context.Context, own *middle, _ time.Duration) (each float64, err error) {
			idle, err := own.Resident()
			if err != nil {
				return 0, err
			}
			err = own.hold(ctx, requests, func() error {
				full, err := own.Resident()
				each = float64(full-idle) / 1024 / float64(requests)
				return err
			})
			return each, err
		})
	}
	peak := func(start func() (*middle, error), model string) paired.Sampler {
		return fresh(start, func(ctx context.Context, own *middle, d time.Duration) (most float64, err error) {
			var stop cleanup
			_, err = own.posts(&stop, "/v1/chat/completions", chatBody(model, said), 1)(ctx, d)
			if err = errors.Join(err, stop.all()); err != nil {
				return 0, err
			}
			bytes, err := own.MostResident()
			return float64(bytes) / (1 << 20), err
		})
	}
	table, err := paired.Measure(ctx, memoryRounds, m.e.budget/20, held(gateway), held(proxy), peak(gateway, "openai/"+vendor.Plain), peak(proxy, vendor.Plain))
	if err != nil {
		return nil, err
	}
	figures := []report.Figure{
		{
			Name: fmt.Sprintf("memory of a request in flight, with %d", requests), Unit: "KiB",
			Means: "Bodies of 8 KB, all sent on, and a vendor that does not answer: the resident memory above that of the idle process, for each.",
		},
		{
			Name: "memory with 64 × 100 KB", Unit: "MiB",
			Means: "The most resident memory of the process, all its services and the files that it maps included, while 64 callers send requests of 100 KB one after another.",
		},
	}
	for i, goal := range []float64{90, 80} {
		f := &figures[i]
		f.Baseline, f.Measured, f.BaselineMeasured, f.Ratio = "bare proxy", table.Median(2*i), table.Median(2*i+1), table.Ratio(2*i, 2*i+1, 1)
		f.Goals = []report.Goal{report.Within(f.Measured, goal, f.Unit)}
	}
	return figures, nil
}

// fresh samples a process that is started for the sample.
func fresh(start func() (*middle, error), sample func(ctx context.Context, own *middle, d time.Duration) (float64, error)) paired.Sampler {
	return func(ctx context.Context, d time.Duration) (float64, error) {
		own, err := start()
		if err != nil {
			return 0, err
		}
		x, err := sample(ctx, own, d)
		return x, errors.Join(err, own.Stop())
	}
}
