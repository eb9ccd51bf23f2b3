package paired_test

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/bench/internal/paired"
)

// What makes one round slow makes all of it slow, and so does not touch the ratio.
func TestARatioSurvivesADriftingMachine(t *testing.T) {
	t.Parallel()
	drift, order := 1.0, ""
	sampler := func(name string, cost float64) paired.Sampler {
		return func(context.Context, time.Duration) (float64, error) {
			order += name
			return cost * drift, nil
		}
	}
	next := func(context.Context, time.Duration) (float64, error) { drift *= 3; return drift, nil }
	table, err := paired.Measure(t.Context(), 3, time.Second, sampler("a", 6), sampler("b", 4), next)
	require.NoError(t, err)
	assert.Equal(t, "abababab", order, "one round to warm up, then three")
	assert.Equal(t, paired.Ratio{Median: 1.5, Low: 1.5, High: 1.5}, table.Ratio(0, 1, 1))
	assert.Equal(t, paired.Ratio{Median: 6, Low: 6, High: 6}, table.Ratio(0, 1, 0.25), "against a quarter of b")
	assert.InDelta(t, 6*9, table.Median(0), 1e-9)
}

func TestAFailureAndNothingMeasuredEndIt(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	_, err := paired.Measure(t.Context(), 3, time.Second, func(context.Context, time.Duration) (float64, error) { return 1, broken })
	require.ErrorIs(t, err, broken)
	_, err = paired.Measure(t.Context(), 3, time.Second, func(context.Context, time.Duration) (float64, error) { return 0, nil })
	require.ErrorContains(t, err, "measured nothing")
}

func TestQuantile(t *testing.T) {
	t.Parallel()
	xs := []float64{4, 1, 3, 2, 5}
	assert.InDelta(t, 3, paired.Quantile(xs, 0.5), 0)
	assert.InDelta(t, 2, paired.Quantile(xs, 0.25), 0)
	assert.InDelta(t, 1.5, paired.Quantile([]float64{1, 2}, 0.5), 0)
	assert.InDelta(t, 7, paired.Quantile([]float64{7}, 0.9), 0)
	assert.True(t, math.IsNaN(paired.Quantile(nil, 0.5)))
	assert.Equal(t, []float64{4, 1, 3, 2, 5}, xs, "left as they were")
}
