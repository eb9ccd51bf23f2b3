package gotest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestMetricsByTheirUnit(t *testing.T) {
	t.Parallel()
	got, err := parse([]byte("goos: linux\npkg: x\nBenchmarkAppend/callers=1-2   \t    1200\t     98765 ns/op\t  10125 appends/s\t 12.5 B/op\nPASS\n"))
	require.NoError(t, err)
	assert.Equal(t, map[string]float64{"ns/op": 98765, "appends/s": 10125, "B/op": 12.5}, got)
	_, err = parse([]byte("PASS\n"))
	require.ErrorIs(t, err, errNone)
	_, err = parse([]byte("BenchmarkA-2 1 2 ns/op\nBenchmarkB-2 1 2 ns/op\n"))
	require.ErrorIs(t, err, errSeveral)
}

func TestABenchmarkOfAPackageRuns(t *testing.T) {
	t.Parallel()
	b, err := Build(t.Context(), "../../..", "./bench/internal/gotest", t.TempDir())
	require.NoError(t, err)
	x, err := b.Metric("^BenchmarkNothing$", "loops")(t.Context(), time.Millisecond)
	require.NoError(t, err)
	assert.InDelta(t, 7, x, 0)
	_, err = b.Metric("^BenchmarkNothing$", "unknown")(t.Context(), time.Millisecond)
	require.ErrorContains(t, err, "unknown")
	_, err = Build(t.Context(), "../../..", "./bench/internal/nowhere", t.TempDir())
	require.ErrorContains(t, err, "nowhere")
}

// BenchmarkNothing is what the test above runs.
func BenchmarkNothing(b *testing.B) {
	for b.Loop() {
	}
	b.ReportMetric(7, "loops")
}
