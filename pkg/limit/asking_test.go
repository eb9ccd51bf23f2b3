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

// asking is a pool in memory where nothing is served.
type asking struct {
	*testing.T
	limit.Memory
}

func (a *asking) acquire() *limit.Slot {
	slot, err := a.Acquire(a.Context(), limit.Request{Key: "k", Adaptive: &limit.Bounds{Min: 5, Start: 80, Max: 200, Probing: true}})
	require.NoError(a, err)
	return slot
}

func (a *asking) report(outcome limit.Outcome, retryAfter time.Duration) {
	a.Report(a.Context(), "k", limit.Report{Outcome: outcome, Subject: "m", RetryAfter: retryAfter})
}

// pool returns the limit and the slots in use.
func (a *asking) pool() [2]int {
	pools, err := a.Pools(a.Context())
	require.NoError(a, err)
	require.Len(a, pools, 1)
	return [2]int{pools[0].Limit, pools[0].InUse}
}

// waited is how long the next caller waits for its slot, which it frees.
func (a *asking) waited() time.Duration {
	start := time.Now()
	a.acquire().Release()
	return time.Since(start)
}

// begin refuses calls until nothing is served; the last refusal asks for a wait.
func (a *asking) begin(retryAfter time.Duration) {
	slot := a.acquire()
	for range 11 {
		a.report(limit.RateLimited, time.Hour)
	}
	require.Equal(a, 5, a.pool()[0])
	a.report(limit.RateLimited, retryAfter)
	slot.Release()
	require.Equal(a, 1, a.pool()[0])
}

func runAsking(t *testing.T, f func(a *asking)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { f(&asking{T: t}) })
}

// Where nothing is served, one call at a time asks whether that has changed: when the last refusal says, but not
// at once, and not minutes later.
func TestTheProviderSaysWhenAPoolAsksAgain(t *testing.T) {
	runAsking(t, func(a *asking) {
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

// A success ends the asking at once, also one of a call that began before: a provider that counts calls at once
// refuses others while it serves some.
func TestASuccessEndsTheAsking(t *testing.T) {
	runAsking(t, func(a *asking) {
		before := a.acquire()
		a.begin(10 * time.Second)
		a.report(limit.Clean, 0)
		before.Release()
		assert.Equal(a, [2]int{5, 0}, a.pool())
		assert.Zero(a, a.waited())
	})
}

// Answers may take minutes: a call that was not refused within seconds is taken, and others need not wait for its answer.
func TestALongCallEndsTheAsking(t *testing.T) {
	runAsking(t, func(a *asking) {
		a.begin(0)
		slot := a.acquire()
		defer slot.Release()
		assert.Equal(a, 5*time.Second, a.waited())
		assert.Equal(a, [2]int{5, 1}, a.pool())
	})
}

// The recorded rule does not ask.
func TestARecordedLimitDoesNotAsk(t *testing.T) {
	runAsking(t, func(a *asking) {
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

// A caller without the patience is not kept in the line of a pool where nothing is served.
func TestAnImpatientCallerDoesNotAsk(t *testing.T) {
	runAsking(t, func(a *asking) {
		a.begin(time.Hour)
		_, err := a.Acquire(a.Context(), limit.Request{Key: "k", Patience: time.Minute})
		held, ok := errors.AsType[*limit.Held](err)
		require.True(a, ok, err)
		assert.Equal(a, time.Hour, held.After)
	})
}
