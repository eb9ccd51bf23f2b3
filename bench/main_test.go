package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/evalfleet/evalfleet/bench/internal/report"
	"github.com/evalfleet/evalfleet/bench/internal/role"
)

// TestMain lets the test binary be its own child, as the program is.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == role.Child {
		main()
		return
	}
	goleak.VerifyTestMain(m)
}

// A rehearsal: every benchmark measures something, however little. What it measures is not asserted.
func TestEveryBenchmarkRuns(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("builds the programs and runs them")
	}
	root, err := moduleRoot()
	require.NoError(t, err)
	s := suite{root: root, budget: 50 * time.Millisecond, progress: io.Discard}
	got, err := s.run(t.Context(), benchmarks())
	require.NoError(t, err)
	require.Len(t, got.Benchmarks, len(benchmarks()))
	for _, b := range got.Benchmarks {
		if b.NotRun != "" {
			t.Logf("%s: not run: %s", b.Name, b.NotRun)
			continue
		}
		assert.NotEmpty(t, b.Figures, b.Name)
		for _, f := range b.Figures {
			assert.Positive(t, f.Measured, f.Name)
			assert.Positive(t, f.BaselineMeasured, f.Name)
			assert.NotEmpty(t, f.Means, f.Name)
		}
	}
	document, err := os.ReadFile("../" + document)
	require.NoError(t, err)
	_, err = report.Replace(document, got)
	require.NoError(t, err)
}

func TestOneBenchmarkAsJSON(t *testing.T) {
	t.Parallel()
	before, err := os.ReadFile("../" + document)
	require.NoError(t, err)
	var out bytes.Buffer
	require.NoError(t, command(t.Context(), []string{"-only", "journal", "-seconds", "0.05", "-json"}, &out, io.Discard))
	var got report.Report
	require.NoError(t, json.Unmarshal(out.Bytes(), &got))
	require.Len(t, got.Benchmarks, 1)
	assert.Equal(t, "journal", got.Benchmarks[0].Name)
	after, err := os.ReadFile("../" + document)
	require.NoError(t, err)
	assert.Equal(t, string(before), string(after), "one benchmark alone writes nothing")
}

func TestWrongFlagsAreNamed(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		"nosuch; there are exec, docker, journal": {"-only", "nosuch"},
		"above 0": {"-seconds", "0"},
		"steps":   {"steps"},
	} {
		require.ErrorContains(t, command(t.Context(), args, io.Discard, io.Discard), want)
	}
}

func TestAFailureNamesItsBenchmark(t *testing.T) {
	t.Parallel()
	root, err := moduleRoot()
	require.NoError(t, err)
	run := func(err error) (report.Report, error) {
		b := benchmark{name: "odd", run: func(context.Context, *env) ([]report.Figure, error) { return nil, err }}
		return suite{root: root, budget: time.Second, progress: io.Discard}.run(t.Context(), []benchmark{b})
	}
	_, err = run(io.ErrUnexpectedEOF)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	require.ErrorContains(t, err, "odd")
	r, err := run(errCannot)
	require.NoError(t, err)
	assert.NotEmpty(t, r.Benchmarks[0].NotRun)
}
