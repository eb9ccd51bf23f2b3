// Package load runs concurrent callers for a while and counts their calls. Each caller makes one call after another, as
// the callers of a service do.
package load

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/evalfleet/evalfleet/bench/internal/paired"
)

// Call is one piece of work: the n-th of a caller, both counted from 0.
type Call func(ctx context.Context, caller, n int) error

// Tally is what was done.
type Tally struct {
	// Calls that ended well.
	Calls int
	// Took is from the first call's beginning to the last one's end.
	Took time.Duration
}

// PerSecond is the rate.
func (t Tally) PerSecond() float64 { return float64(t.Calls) / t.Took.Seconds() }

// Callers lets each of several callers work for d, and finish what it began by then. It makes at least one call for
// each and stops at the first error.
func Callers(ctx context.Context, callers int, d time.Duration, work Call) (Tally, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	begin := time.Now()
	var calls atomic.Int64
	var wg sync.WaitGroup
	for caller := range callers {
		wg.Go(func() {
			for n := 0; ctx.Err() == nil && (n == 0 || time.Since(begin) < d); n++ {
				if err := work(ctx, caller, n); err != nil {
					cancel(err)
					return
				}
				calls.Add(1)
			}
		})
	}
	wg.Wait()
	return Tally{Calls: int(calls.Load()), Took: time.Since(begin)}, context.Cause(ctx)
}

// Rate is a sampler of calls per second.
func Rate(callers int, work Call) paired.Sampler {
	return func(ctx context.Context, d time.Duration) (float64, error) {
		t, err := Callers(ctx, callers, d, work)
		return t.PerSecond(), err
	}
}

// Latency is a sampler of the median time of a call in microseconds, with one caller.
func Latency(work Call) paired.Sampler {
	return func(ctx context.Context, d time.Duration) (float64, error) {
		var took []float64
		_, err := Callers(ctx, 1, d, func(ctx context.Context, caller, n int) error {
			begin := time.Now()
			err := work(ctx, caller, n)
			took = append(took, float64(time.Since(begin).Nanoseconds())/1e3)
			return err
		})
		return paired.Quantile(took, 0.5), err
	}
}

// CPU returns a sampler of the processor time per call in microseconds. used returns the total processor time of the
// process that serves the calls; it only grows.
func CPU(callers int, work Call, used func() (time.Duration, error)) paired.Sampler {
	return func(ctx context.Context, d time.Duration) (float64, error) {
		before, err := used()
		if err != nil {
			return 0, err
		}
		t, err := Callers(ctx, callers, d, work)
		after, usedErr := used()
		return float64((after - before).Nanoseconds()) / 1e3 / float64(t.Calls), errors.Join(err, usedErr)
	}
}
