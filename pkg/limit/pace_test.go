package limit_test

import (
	"context"
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/limit"
)

// paced is a pool in memory of a provider that speaks of its limits.
type paced struct {
	*testing.T
	limit.Memory
	start time.Time
}

func runPaced(t *testing.T, f func(p *paced)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { f(&paced{T: t, start: time.Now()}) })
}

// call makes a call of a second, whose answer says what remained when it began of a hundred, which would be full after
// a while; it returns how long the call waited for its slot.
func (p *paced) call(remaining float64, full time.Duration) time.Duration {
	return p.say(limit.Allowances{Requests: limit.Allowance{Limit: 100, Remaining: remaining, Full: time.Now().Add(full)}})
}

func (p *paced) say(a limit.Allowances) time.Duration {
	before := time.Now()
	slot := p.acquire()
	defer slot.Release()
	time.Sleep(time.Second)
	slot.Observe(a)
	return slot.Began().Sub(before)
}

func (p *paced) acquire() *limit.Slot {
	slot, err := p.Acquire(p.Context(), limit.Request{Key: "k", Fixed: 10})
	require.NoError(p, err)
	return slot
}

// waits is how long the next call waits.
func (p *paced) waits() time.Duration {
	before := time.Now()
	slot := p.acquire()
	slot.Release()
	return slot.Began().Sub(before)
}

// Three calls' worth is needed for a call: two are a reserve.
func TestACallWaitsForWhatABucketGains(t *testing.T) {
	runPaced(t, func(p *paced) {
		assert.Zero(p, p.call(50, 30*time.Second))
		assert.Zero(p, p.waits(), "half remains")
		p.call(1, 49500*time.Millisecond) // Two in a second, and so three by the answer.
		assert.Zero(p, p.waits())
		pools, err := p.Pools(p.Context())
		require.NoError(p, err)
		assert.Equal(p, 500*time.Millisecond, pools[0].Here.Pause)
		assert.Equal(p, 500*time.Millisecond, p.waits(), "one call was made of what there was")
		time.Sleep(20 * time.Second)
		for range 35 {
			assert.Zero(p, p.waits(), "what was gained meanwhile")
		}
	})
}

// What a window has left does not grow before its end, which the answers tell by its staying where it is.
func TestACallWaitsForTheEndOfAWindow(t *testing.T) {
	runPaced(t, func(p *paced) {
		end := p.start.Add(time.Minute)
		for remaining := 20.0; remaining >= 2; remaining-- {
			assert.Zero(p, p.say(limit.Allowances{Tokens: limit.Allowance{Limit: 20, Remaining: remaining, Full: end}}))
		}
		p.waits()
		assert.Equal(p, end, time.Now())
		assert.Zero(p, p.waits(), "all is back")
	})
}

// What a call takes is learned: here some hundred tokens, of which some hundred are too few then.
func TestWhatACallTakesIsLearned(t *testing.T) {
	runPaced(t, func(p *paced) {
		tokens := func(remaining float64) {
			full := time.Duration((10_000 - remaining) / 100 * float64(time.Second)) // A hundred in a second.
			p.say(limit.Allowances{Input: limit.Allowance{Limit: 10_000, Remaining: remaining, Full: time.Now().Add(full)}})
		}
		remaining := 8000.0
		for ; remaining > 3000; remaining += 100 - 500 {
			tokens(remaining)
		}
		tokens(700)
		assert.Positive(p, p.waits())
	})
}

// Nothing that a provider says stops a pool for more than ten seconds before a call tries whether it is true, and for
// more than a minute once such a call was refused. What cannot be stops it not at all.
func TestAPauseEnds(t *testing.T) {
	runPaced(t, func(p *paced) {
		year := func() limit.Allowances {
			return limit.Allowances{Requests: limit.Allowance{Limit: 100, Remaining: 1, Full: time.Now().Add(365 * 24 * time.Hour)}}
		}
		p.say(year())
		before := time.Now()
		tries := p.acquire()
		assert.Equal(p, 10*time.Second, time.Since(before))
		said := year()
		said.Refused = true
		tries.Observe(said)
		tries.Release()
		assert.Equal(p, time.Minute, p.waits())
	})
}

// What a provider says and does not keep to has no effect after a while: answers of several accounts behind a proxy, or
// of a limit that others use up first though calls are served.
func TestWhatIsNotTrueIsSoonOfNoEffect(t *testing.T) {
	for name, full := range map[string]time.Duration{"a year": 365 * 24 * time.Hour, "a minute": time.Minute, "a second": time.Second} {
		t.Run(name, func(t *testing.T) {
			runPaced(t, func(p *paced) {
				for time.Since(p.start) < 5*time.Minute {
					p.call(1, full)
				}
				var waited time.Duration
				for range 20 {
					waited += p.call(1, full)
				}
				assert.Less(p, waited, time.Second)
			})
		})
	}
}

func TestWhatCannotBeIsIgnored(t *testing.T) {
	now := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) // That of a bubble.
	full := now.Add(30 * time.Second)
	for name, a := range map[string]limit.Allowance{
		"nothing":                       {},
		"no limit":                      {Remaining: 0, Full: full},
		"more than all":                 {Limit: 10, Remaining: 11, Full: full},
		"a debt":                        {Limit: 10, Remaining: -1, Full: full},
		"no number":                     {Limit: math.NaN(), Remaining: 1, Full: full},
		"no remaining number":           {Limit: 10, Remaining: math.NaN(), Full: full},
		"no end":                        {Limit: math.Inf(1), Remaining: 1, Full: full},
		"more than there is":            {Limit: 1e308, Remaining: 1, Full: now.Add(1)},
		"full before the call":          {Limit: 10, Remaining: 1, Full: now.Add(-time.Hour)},
		"no time":                       {Limit: 10, Remaining: 1},
		"nothing ever, and yet answers": {Limit: 10, Remaining: 0, Full: full},
	} {
		t.Run(name, func(t *testing.T) {
			runPaced(t, func(p *paced) {
				for range 20 {
					p.say(limit.Allowances{Requests: a, Tokens: a, Input: a, Output: a})
				}
				assert.Zero(p, p.waits())
			})
		})
	}
}

// A refusal is believed that nothing remains, though nothing else was ever said.
func TestARefusalIsBelieved(t *testing.T) {
	runPaced(t, func(p *paced) {
		slot := p.acquire()
		slot.Observe(limit.Allowances{Requests: limit.Allowance{Limit: 100, Full: time.Now().Add(50 * time.Second)}, Refused: true})
		slot.Release()
		assert.Equal(p, 1500*time.Millisecond, p.waits())
	})
}

// Callers that leave the queue meanwhile take nothing.
func TestWhoeverLeavesAPausedLineTakesNothing(t *testing.T) {
	runPaced(t, func(p *paced) {
		p.call(1, 49500*time.Millisecond)
		ctx, leave := context.WithTimeout(p.Context(), time.Millisecond)
		defer leave()
		_, err := p.Acquire(ctx, limit.Request{Key: "k", Fixed: 10})
		require.ErrorIs(p, err, context.DeadlineExceeded)
		assert.Equal(p, 999*time.Millisecond, p.waits())
	})
}

// A caller that has not the patience for a pause is told how long it is, at once or once its patience ends; where it
// waits for the calls of others it stays.
func TestAnImpatientCallerIsToldOfThePause(t *testing.T) {
	runPaced(t, func(p *paced) {
		request := limit.Request{Key: "k", Fixed: 10, Patience: 10 * time.Second}
		p.call(1, 24*time.Hour)
		_, err := p.Acquire(p.Context(), request)
		held, ok := errors.AsType[*limit.HeldError](err)
		require.True(p, ok, err)
		assert.Equal(p, time.Minute, held.After)
		time.Sleep(time.Minute)
		var slots []*limit.Slot
		for range 10 {
			slots = append(slots, p.acquire())
		}
		time.AfterFunc(25*time.Second, slots[0].Release)
		slot, err := p.Acquire(p.Context(), request)
		require.NoError(p, err)
		assert.Zero(p, slot.Began().Sub(slots[0].Began())-25*time.Second)
		time.AfterFunc(5*time.Second, func() {
			slots[1].Observe(limit.Allowances{Requests: limit.Allowance{Limit: 100, Remaining: 1, Full: time.Now().Add(24 * time.Hour)}})
		})
		_, err = p.Acquire(p.Context(), request)
		held, ok = errors.AsType[*limit.HeldError](err)
		require.True(p, ok, err)
		assert.Equal(p, 55*time.Second, held.After)
	})
}
