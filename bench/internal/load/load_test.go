package load_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/evalfleet/evalfleet/bench/internal/load"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// tenth takes a tenth of a second.
func tenth(context.Context, int, int) error { time.Sleep(time.Second / 10); return nil }

func TestRateAndLatencyAreThoseOfTheCalls(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rate, err := load.Rate(5, tenth)(t.Context(), time.Second)
		require.NoError(t, err)
		assert.InDelta(t, 50, rate, 1e-6)
		micros, err := load.Latency(tenth)(t.Context(), time.Second)
		require.NoError(t, err)
		assert.InDelta(t, 1e5, micros, 1e-6)
	})
}

func TestACallThatBeganIsFinishedAndCounted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tally, err := load.Callers(t.Context(), 3, time.Millisecond, tenth)
		require.NoError(t, err)
		assert.Equal(t, load.Tally{Calls: 3, Took: time.Second / 10}, tally)
	})
}

func TestAnErrorEndsAllCallers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		_, err := load.Callers(t.Context(), 4, time.Hour, func(ctx context.Context, caller, n int) error {
			if caller == 2 && n == 3 {
				return broken
			}
			return tenth(ctx, caller, n)
		})
		require.ErrorIs(t, err, broken)
	})
}

func TestProcessorTimeIsSharedOutOverTheCalls(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		used := time.Duration(0)
		work := func(ctx context.Context, caller, n int) error {
			used += 30 * time.Microsecond
			return tenth(ctx, caller, n)
		}
		micros, err := load.CPU(1, work, func() (time.Duration, error) { return used, nil })(t.Context(), time.Second)
		require.NoError(t, err)
		assert.InDelta(t, 30, micros, 1e-6)
	})
}
