package limit

import (
	"slices"
	"time"
)

// A gate holds calls back although slots are free: while the rule is tripped, and while the provider has little left of
// a rate limit.

const (
	// minBackoff and maxBackoff bound how long a tripped pool waits after a refusal. A provider that asks for a longer
	// wait is called all the same: it may mean one model, or a limit that is full long before it needs to be.
	minBackoff = time.Second
	maxBackoff = 10 * time.Second
	// acceptedAfter is how long a trial call must be under way before the provider counts as serving. Refusals come
	// sooner, and answers may take minutes.
	acceptedAfter = 5 * time.Second
)

// Follow updates the gate after its rule has got a report, or was replaced. While the rule is tripped, each refusal
// makes a slot back off for as long as the answer asks for, within bounds: the slot counts as in use in all processes
// that share the pool, so that none calls sooner. When the rule is no longer tripped, all backoffs end.
func (g *Gate) Follow(rule *Rule, r Report) {
	g.tripped = rule.Tripped()
	switch {
	case g.tripped && r.Outcome == RateLimited:
		wait := max(r.RetryAfter, minBackoff)
		g.retryAt = time.Now().Add(wait)
		s := &Slot{gate: g}
		g.inUse++
		g.backoffs = append(slices.DeleteFunc(g.backoffs, func(s *Slot) bool { return s.free }), s)
		time.AfterFunc(min(wait, maxBackoff), s.Release)
	case !g.tripped && g.backoffs != nil:
		ended := g.backoffs
		g.backoffs = nil
		for _, s := range ended {
			s.release()
		}
	}
}

// acceptLater calls Accepted if the trial call in a slot is still under way after a while.
func (g *Gate) acceptLater(s *Slot) {
	time.AfterFunc(acceptedAfter, func() {
		g.Lock.Lock()
		defer g.Lock.Unlock()
		if !s.free && g.tripped {
			g.Accepted()
		}
	})
}

// held is how long calls are held back at least; zero if they are not.
func (g *Gate) held(now time.Time) time.Duration {
	if g.tripped {
		return max(g.retryAt.Sub(now), minBackoff)
	}
	if g.paces == nil {
		return 0
	}
	return g.paces.wait(now)
}

// giveUp ends the wait of a caller whose patience has ended, if the rule is tripped or the pool pauses for longer. A
// caller in a line that moves stays.
func (g *Gate) giveUp(s *Slot) error {
	g.Lock.Lock()
	defer g.Lock.Unlock()
	after := g.held(time.Now())
	if !g.tripped && after <= s.patience {
		return nil
	}
	g.leave(s)
	return &HeldError{after}
}

// Observe records the rate limits that the provider reported with the answer to the call in this slot, also with a
// refusal. Once little remains, further callers wait before the provider refuses them: until as much is back as a call
// takes, and no longer than a minute after the last report. Impossible values are ignored, and from time to time a
// trial call shows whether a report is true.
func (s *Slot) Observe(a Allowances) {
	g, now := s.gate, time.Now()
	g.Lock.Lock()
	defer g.Lock.Unlock()
	if g.paces == nil {
		g.paces = newPaces(now)
	}
	g.paces.observe(a, s, now, g.calls)
	if g.waiting > 0 {
		g.refresh()
		g.admit()
	}
}

// pause is how long the next call must wait for what the provider has left.
func (g *Gate) pause(now time.Time) time.Duration {
	if g.paces == nil {
		return 0
	}
	return g.paces.next(now)
}

// wake admits waiting callers after a while.
func (g *Gate) wake(after time.Duration) {
	if g.waker != nil {
		g.waker.Reset(after)
		return
	}
	g.waker = time.AfterFunc(after, func() {
		g.Lock.Lock()
		defer g.Lock.Unlock()
		g.refresh()
		g.admit()
	})
}
