package limit_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/limit"
	"github.com/evalfleet/evalfleet/pkg/limit/limittrial"
)

// tripped is a pool in memory whose provider refuses all calls.
type tripped struct {
	*testing.T
	limit.Memory
}

func (a *tripped) acquire() *limit.Slot {
	slot, err := a.Acquire(a.Context(), limit.Request{Key: "k", Adaptive: &limit.Bounds{Min: 5, Start: 80, Max: 200, Probing: true}})
	require.NoError(a, err)
	return slot
}

func (a *tripped) report(outcome limit.Outcome, retryAfter time.Duration) {
	a.Report(a.Context(), "k", limit.Report{Outcome: outcome, Subject: "m", RetryAfter: retryAfter})
}

// pool returns the limit and the slots in use.
func (a *tripped) pool() [2]int {
	pools, err := a.Pools(a.Context())
	require.NoError(a, err)
	require.Len(a, pools, 1)
	return [2]int{pools[0].Limit, pools[0].InUse}
}

// waited is how long the next caller waits for its slot, which it frees.
func (a *tripped) waited() time.Duration {
	start := time.Now()
	a.acquire().Release()
	return time.Since(start)
}

// begin refuses calls until the rule is tripped; the last refusal asks for a wait.
func (a *tripped) begin(retryAfter time.Duration) {
	slot := a.acquire()
	for range 11 {
		a.report(limit.RateLimited, time.Hour)
	}
	require.Equal(a, 5, a.pool()[0])
	a.report(limit.RateLimited, retryAfter)
	slot.Release()
	require.Equal(a, 1, a.pool()[0])
}

func runTripped(t *testing.T, f func(a *tripped)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { f(&tripped{T: t}) })
}

// A tripped pool makes one trial call at a time: when the last refusal asks for it, but not at once, and not minutes
// later.
func TestTheProviderSaysWhenATrippedPoolCallsAgain(t *testing.T) {
	runTripped(t, func(a *tripped) {
		a.begin(0)
		assert.Equal(a, time.Second, a.waited())
		for wait, want := range map[time.Duration]time.Duration{
			0: time.Second, time.Millisecond: time.Second, 7 * time.Second: 7 * time.Second, time.Hour: 10 * time.Second,
		} {
			a.report(limit.RateLimited, wait)
			assert.Equal(a, want, a.waited(), wait)
		}
	})
}

// A success resets the limit at once, also that of a call which began before: a provider that counts calls in flight
// refuses others while it serves some.
func TestASuccessResetsATrippedLimit(t *testing.T) {
	runTripped(t, func(a *tripped) {
		before := a.acquire()
		a.begin(10 * time.Second)
		a.report(limit.Clean, 0)
		before.Release()
		assert.Equal(a, [2]int{5, 0}, a.pool())
		assert.Zero(a, a.waited())
	})
}

// Answers may take minutes: a trial call that was not refused within seconds is accepted, and others need not wait for
// its answer.
func TestALongCallResetsATrippedLimit(t *testing.T) {
	runTripped(t, func(a *tripped) {
		a.begin(0)
		slot := a.acquire()
		defer slot.Release()
		assert.Equal(a, 5*time.Second, a.waited())
		assert.Equal(a, [2]int{5, 1}, a.pool())
	})
}

// The recorded rule has no trial calls.
func TestARecordedLimitDoesNotTrip(t *testing.T) {
	runTripped(t, func(a *tripped) {
		slot, err := a.Acquire(t.Context(), limittrial.Recorded())
		require.NoError(a, err)
		for range 20 {
			a.report(limit.RateLimited, time.Hour)
		}
		slot.Release()
		assert.Zero(a, a.waited())
		assert.Equal(a, [2]int{15, 0}, a.pool())
	})
}

// A caller whose patience is too short is not kept in the line of a tripped pool.
func TestAnImpatientCallerDoesNotWaitForATrippedPool(t *testing.T) {
	runTripped(t, func(a *tripped) {
		a.begin(time.Hour)
		_, err := a.Acquire(a.Context(), limit.Request{Key: "k", Patience: time.Minute})
		held, ok := errors.AsType[*limit.HeldError](err)
		require.True(a, ok, err)
		assert.Equal(a, time.Hour, held.After)
	})
}
