// Package gotest runs benchmarks that are part of packages which other programs cannot import. A package's test binary
// is built once; each measurement is a run of one benchmark of it.
package gotest

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/evalfleet/evalfleet/bench/internal/paired"
)

// Binary is a built test binary.
type Binary struct {
	path string
	// dir is the package's folder, in which its tests expect to run.
	dir string
	env []string
}

// Build builds the test binary of a package, such as `./pkg/effect`, of the module in root, into the folder out. Env
// are further variables for its runs.
func Build(ctx context.Context, root, pkg, out string, env ...string) (Binary, error) {
	b := Binary{path: filepath.Join(out, strings.ReplaceAll(strings.TrimPrefix(pkg, "./"), "/", "-")+".test"), dir: filepath.Join(root, pkg), env: env}
	cmd := exec.CommandContext(ctx, "go", "test", "-c", "-o", b.path, pkg)
	cmd.Dir = root
	if said, err := cmd.CombinedOutput(); err != nil {
		return b, fmt.Errorf("build the tests of %s: %w: %s", pkg, err, said)
	}
	return b, nil
}

// Run runs one benchmark, named as for -test.bench, for about d, and returns its metrics by their unit, such as
// `ns/op`.
func (b Binary) Run(ctx context.Context, benchmark string, d time.Duration) (map[string]float64, error) {
	cmd := exec.CommandContext(ctx, b.path, "-test.run", "^$", "-test.bench", benchmark, "-test.benchtime", d.String())
	cmd.Dir = b.dir
	cmd.Env = append(cmd.Environ(), b.env...)
	said, err := cmd.CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %s", benchmark, err, said)
	}
	metrics, err := parse(said)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %s", benchmark, err, said)
	}
	return metrics, nil
}

// Metric is a sampler of one metric of a benchmark.
func (b Binary) Metric(benchmark, unit string) paired.Sampler {
	return func(ctx context.Context, d time.Duration) (float64, error) {
		metrics, err := b.Run(ctx, benchmark, d)
		if err != nil {
			return 0, err
		}
		x, ok := metrics[unit]
		if !ok {
			return 0, fmt.Errorf("%s has no metric %s", benchmark, unit)
		}
		return x, nil
	}
}

var (
	errNone    = errors.New("no benchmark ran")
	errSeveral = errors.New("more than one benchmark ran")
)

// parse reads the one line of results: name, iterations, then pairs of value and unit. See
// golang.org/design/14313-benchmark-format.
func parse(said []byte) (map[string]float64, error) {
	var metrics map[string]float64
	for lines := bufio.NewScanner(bytes.NewReader(said)); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) < 4 || !strings.HasPrefix(fields[0], "Benchmark") {
			continue
		}
		if metrics != nil {
			return nil, errSeveral
		}
		metrics = map[string]float64{}
		for pair := fields[2:]; len(pair) >= 2; pair = pair[2:] {
			x, err := strconv.ParseFloat(pair[0], 64)
			if err != nil {
				return nil, err
			}
			metrics[pair[1]] = x
		}
	}
	if metrics == nil {
		return nil, errNone
	}
	return metrics, nil
}
