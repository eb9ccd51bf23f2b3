// Package limittest is the suite that every limit.Limiter passes.
package limittest

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/limit"
	"github.com/evalfleet/evalfleet/pkg/waittest"
)

// Harness describes an implementation to test.
type Harness struct {
	// Run calls f as a subtest, in an environment where settle returns once every caller of Acquire has been admitted
	// or waits in its line.
	Run func(t *testing.T, name string, f func(t *testing.T, settle func()))
	// New makes a limiter without pools.
	New func(t *testing.T) limit.Limiter
}

// Run runs the suite.
func Run(t *testing.T, h Harness) {
	t.Helper()
	for name, f := range map[string]func(*fixture){
		"a slot is free again after its release":          release,
		"no more than the limit are admitted":             bound,
		"a line is served in the order of arrival":        order,
		"lines of tenants are served in turn":             turns,
		"the front is the head of one's own line":         front,
		"a full queue turns away":                         full,
		"whoever leaves the line takes no slot":           leave,
		"pools of different keys do not meet":             keys,
		"the first caller sets the bounds":                firstBounds,
		"a fixed pool is retuned by hand":                 retuneFixed,
		"an adaptive pool grows and shrinks":              adapt,
		"an adaptive pool's highest limit is set by hand": retuneAdaptive,
		"what is not known is an error or ignored":        unknown,
	} {
		h.Run(t, name, func(t *testing.T, settle func()) {
			f(&fixture{T: t, limiter: h.New(t), settle: settle})
		})
	}
}

// fixture is one test of the suite.
type fixture struct {
	*testing.T
	limiter limit.Limiter
	settle  func()
}

// caller is one call of Acquire in a goroutine of its own.
type caller struct {
	done  chan struct{}
	slot  *limit.Slot
	err   error
	leave context.CancelFunc
}

func (f *fixture) start(r limit.Request) *caller {
	ctx, cancel := context.WithCancel(f.Context())
	c := &caller{done: make(chan struct{}), leave: cancel}
	go func() {
		defer close(c.done)
		c.slot, c.err = f.limiter.Acquire(ctx, r)
	}()
	f.settle()
	return c
}

// admitted reports whether the call has returned.
func (c *caller) admitted() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

func (f *fixture) free(c *caller) {
	require.True(f, c.admitted(), "the caller holds no slot")
	require.NoError(f, c.err)
	c.slot.Release()
	f.settle()
}

func (f *fixture) pool(key string) limit.Pool {
	pools, err := f.limiter.Pools(f.Context())
	require.NoError(f, err)
	for _, p := range pools {
		if p.Key == key {
			return p
		}
	}
	require.Fail(f, "no pool", key)
	return limit.Pool{}
}

func fixed(n int) limit.Request { return limit.Request{Key: "k", Tenant: "t", Fixed: n} }

func of(tenant string, r limit.Request) limit.Request {
	r.Tenant = tenant
	return r
}

func release(f *fixture) {
	first := f.start(fixed(1))
	second := f.start(fixed(1))
	require.False(f, second.admitted())
	f.free(first)
	first.slot.Release() // a second release is nothing
	third := f.start(fixed(1))
	assert.True(f, second.admitted())
	assert.False(f, third.admitted())
	f.free(second)
	f.free(third)
	assert.Zero(f, f.pool("k").InUse)
}

func bound(f *fixture) {
	var callers []*caller
	for range 5 {
		callers = append(callers, f.start(fixed(3)))
	}
	p := f.pool("k")
	assert.Equal(f, []int{3, 3, 2}, []int{p.Limit, p.InUse, p.Waiting})
	assert.Equal(f, limit.Share{Slots: 3, InUse: 3, Waiting: 2}, p.Here)
	for _, c := range callers {
		f.free(c)
	}
}

func order(f *fixture) {
	holder := f.start(fixed(1))
	queue := []*caller{f.start(fixed(1)), f.start(fixed(1)), f.start(fixed(1))}
	f.free(holder)
	for i, c := range queue {
		for _, later := range queue[i+1:] {
			assert.False(f, later.admitted())
		}
		f.free(c)
	}
}

func turns(f *fixture) {
	holder := f.start(fixed(1))
	a1, a2, a3 := f.start(of("a", fixed(1))), f.start(of("a", fixed(1))), f.start(of("a", fixed(1)))
	b1 := f.start(of("b", fixed(1)))
	f.free(holder)
	f.free(a1)
	assert.True(f, b1.admitted(), "one tenant's long line must not keep another waiting")
	assert.False(f, a2.admitted())
	f.free(b1)
	f.free(a2)
	f.free(a3)
}

func front(f *fixture) {
	holder := f.start(fixed(1))
	a1, b1, b2 := f.start(of("a", fixed(1))), f.start(of("b", fixed(1))), f.start(of("b", fixed(1)))
	again := of("b", fixed(1))
	again.Front = true
	retried := f.start(again)
	f.free(holder)
	f.free(a1)
	assert.True(f, retried.admitted(), "before the others of its tenant, after another tenant whose turn it is")
	assert.False(f, b1.admitted())
	f.free(retried)
	f.free(b1)
	f.free(b2)
}

func full(f *fixture) {
	r := fixed(1)
	r.MaxWaiting = 1
	holder, waiting, turned := f.start(r), f.start(r), f.start(r)
	require.True(f, turned.admitted())
	require.ErrorIs(f, turned.err, limit.ErrFull)
	r.Front = true
	retried := f.start(r)
	assert.False(f, retried.admitted(), "a retry is let in: it was counted before")
	f.free(holder)
	f.free(retried)
	f.free(waiting)
}

func leave(f *fixture) {
	holder, impatient, patient := f.start(fixed(1)), f.start(fixed(1)), f.start(fixed(1))
	impatient.leave()
	waittest.For(f, impatient.done, "the end of a caller that left")
	require.ErrorIs(f, impatient.err, context.Canceled)
	assert.Equal(f, 1, f.pool("k").Waiting)
	f.free(holder)
	assert.True(f, patient.admitted())
	f.free(patient)
	gone, cancel := context.WithCancel(f.Context())
	cancel()
	_, err := f.limiter.Acquire(gone, fixed(1))
	require.ErrorIs(f, err, context.Canceled)
	assert.Zero(f, f.pool("k").InUse)
}

func keys(f *fixture) {
	other := fixed(1)
	other.Key = "other"
	a, b := f.start(fixed(1)), f.start(other)
	assert.True(f, a.admitted())
	assert.True(f, b.admitted())
	f.free(a)
	f.free(b)
}

func firstBounds(f *fixture) {
	a, b := f.start(fixed(1)), f.start(fixed(5))
	assert.False(f, b.admitted())
	f.free(a)
	f.free(b)
}

func retuneFixed(f *fixture) {
	a, b, c := f.start(fixed(1)), f.start(fixed(1)), f.start(fixed(1))
	p, err := f.limiter.SetMax(f.Context(), "k", 2)
	require.NoError(f, err)
	assert.Equal(f, 2, p.Limit)
	f.settle()
	require.True(f, b.admitted(), "a higher limit admits at once")
	_, err = f.limiter.SetMax(f.Context(), "k", 0)
	require.ErrorIs(f, err, limit.ErrTooLow)
	_, err = f.limiter.SetMax(f.Context(), "k", 1)
	require.NoError(f, err)
	f.free(a)
	assert.False(f, c.admitted(), "a lower limit takes no slot away, but gives none either")
	f.free(b)
	f.free(c)
}

func adaptive() limit.Request {
	return limit.Request{Key: "k", Tenant: "t", Adaptive: &limit.Bounds{Min: 1, Start: 4, Max: 20, DecreaseFactor: 0.5, ScaleUp: 0.05}}
}

func adapt(f *fixture) {
	var callers []*caller
	for range 6 {
		callers = append(callers, f.start(adaptive()))
	}
	assert.Equal(f, 4, f.pool("k").InUse)
	for range 4 {
		f.limiter.Report(f.Context(), "k", limit.Report{Outcome: limit.Clean, Subject: "m"})
	}
	f.settle()
	p := f.pool("k")
	assert.Equal(f, []int{8, 6, 1, 20}, []int{p.Limit, p.InUse, p.Min, p.Max})
	assert.True(f, p.Adaptive)
	f.limiter.Report(f.Context(), "k", limit.Report{Outcome: limit.RateLimited, Subject: "m"})
	p = f.pool("k")
	assert.Equal(f, 4, p.Limit)
	require.Len(f, p.History, 2)
	assert.Equal(f, limit.SlowStart, p.History[0].Reason)
	assert.Equal(f, limit.RateLimit, p.History[1].Reason)
	assert.Equal(f, "m", p.History[1].Subject)
	assert.Equal(f, []int{8, 4}, []int{p.History[1].Old, p.History[1].New})
	for _, c := range callers {
		f.free(c)
	}
}

func retuneAdaptive(f *fixture) {
	f.free(f.start(adaptive()))
	p, err := f.limiter.SetMax(f.Context(), "k", 2)
	require.NoError(f, err)
	assert.Equal(f, []int{2, 2}, []int{p.Limit, p.Max})
	p, err = f.limiter.SetMax(f.Context(), "k", 30)
	require.NoError(f, err)
	assert.Equal(f, []int{2, 30}, []int{p.Limit, p.Max}, "a higher bound only lets the limit grow")
	_, err = f.limiter.SetMax(f.Context(), "k", 0)
	require.ErrorIs(f, err, limit.ErrTooLow)
}

func unknown(f *fixture) {
	_, err := f.limiter.SetMax(f.Context(), "nothing", 3)
	require.ErrorIs(f, err, limit.ErrUnknownPool)
	f.limiter.Report(f.Context(), "nothing", limit.Report{Outcome: limit.Clean, Subject: "m"})
	pools, err := f.limiter.Pools(f.Context())
	require.NoError(f, err)
	assert.Empty(f, pools)
}
