package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/evalfleet/evalfleet/bench/internal/paired"
	"github.com/evalfleet/evalfleet/bench/internal/report"
)

// benchmark compares one part of the platform with a baseline.
type benchmark struct {
	// name is what -only takes.
	name string
	// title and how explain it in the report.
	title, how string
	// run measures. An errCannot names what this machine lacks for the measurement.
	run func(ctx context.Context, e *env) ([]report.Figure, error)
}

// benchmarks are all of them, in the order of the report.
func benchmarks() []benchmark {
	return []benchmark{execBenchmark(), dockerBenchmark(), journalBenchmark(), gatewayBenchmark(), endpointsBenchmark(), limitsBenchmark(), ledgerBenchmark(), stepsBenchmark(), turnsBenchmark(), workerBenchmark(), inspectExecBenchmark(), inspectModelBenchmark()}
}

// errCannot wraps the reason why a benchmark cannot run on this machine.
var errCannot = errors.New("this machine cannot run it")

// env is what a benchmark works with.
type env struct {
	// root is the module's folder.
	root string
	// dir is a folder of the benchmark's own, on the disk that holds the module. It is removed afterwards.
	dir string
	// budget is how long it may measure, preparations aside.
	budget time.Duration
	// programs are those of the platform, shared by all benchmarks.
	programs *programs
}

// measure lets samplers take turns for the whole budget.
func (e *env) measure(ctx context.Context, rounds int, samplers ...paired.Sampler) (paired.Table, error) {
	turns := len(samplers)*rounds + len(samplers)/4 + 1
	return paired.Measure(ctx, rounds, e.budget/time.Duration(turns), samplers...)
}

// suite runs benchmarks one after another.
type suite struct {
	root   string
	budget time.Duration
	// progress receives lines about the current step.
	progress io.Writer
}

// run runs the benchmarks and reports. It ends with the first that fails; one that cannot run on this machine does not
// fail.
func (s suite) run(ctx context.Context, list []benchmark) (r report.Report, err error) {
	begin := time.Now()
	r = report.Report{Date: begin, Machine: report.ThisMachine()}
	// Not in the system's folder for temporary files, which is often no disk at all: what is synced there is not
	// durable, and costs nothing.
	bin := filepath.Join(s.root, "bin")
	if err := os.MkdirAll(bin, 0o750); err != nil {
		return r, err
	}
	scratch, err := os.MkdirTemp(bin, "bench-")
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	shared := &programs{root: s.root, dir: filepath.Join(scratch, "bin")}
	for _, b := range list {
		since := time.Now()
		fmt.Fprintf(s.progress, "%s … ", b.name)
		done, err := s.one(ctx, b, &env{root: s.root, dir: filepath.Join(scratch, b.name), budget: s.budget, programs: shared})
		if err != nil {
			fmt.Fprintln(s.progress, "failed")
			return r, fmt.Errorf("%s: %w", b.name, err)
		}
		fmt.Fprintln(s.progress, time.Since(since).Round(time.Second/10))
		r.Benchmarks = append(r.Benchmarks, done)
	}
	r.Took = time.Since(begin).Round(time.Second).String()
	return r, nil
}

func (s suite) one(ctx context.Context, b benchmark, e *env) (done report.Benchmark, err error) {
	if err := os.Mkdir(e.dir, 0o750); err != nil {
		return done, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(e.dir)) }()
	done = report.Benchmark{Name: b.name, Title: b.title, How: b.how}
	done.Figures, err = b.run(ctx, e)
	if errors.Is(err, errCannot) {
		done.NotRun, err = err.Error(), nil
	}
	return done, err
}
