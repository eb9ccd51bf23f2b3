package limit

import (
	"slices"
	"time"
)

// A gate holds calls back though it has slots: while one call asks whether the provider serves anything, and while the
// provider has little left of a limit by time.

const (
	// shortestRest and longestRest bound how long a pool that asks waits after a refusal. Even a provider that wants to
	// rest for longer is asked then: it may speak of one model, or of a limit that is full long before it needs to be.
	shortestRest = time.Second
	longestRest  = 10 * time.Second
	// takenAfter is how long a call that asks may take before the provider counts as serving. Refusals come sooner, and
	// answers may take minutes.
	takenAfter = 5 * time.Second
)

// Reported is called when the rule has got a report, or is another. While the rule asks whether anything is served, a
// slot rests after each refusal for as long as the answer asks for, within bounds: it counts as in use, in all
// processes that share the pool, so that none asks sooner. Rests end with the asking.
func (g *Gate) Reported(rule *Rule, r Report) {
	g.asking = rule.Asking()
	switch {
	case g.asking && r.Outcome == RateLimited:
		g.again = time.Now().Add(max(r.RetryAfter, shortestRest))
		s := &Slot{gate: g}
		g.inUse++
		g.resting = append(slices.DeleteFunc(g.resting, func(s *Slot) bool { return s.free }), s)
		time.AfterFunc(min(max(r.RetryAfter, shortestRest), longestRest), s.Release)
	case !g.asking && g.resting != nil:
		ended := g.resting
		g.resting = nil
		for _, s := range ended {
			s.release()
		}
	}
}

// ask calls Taken if the call in a slot is still under way after a while.
func (g *Gate) ask(s *Slot) {
	time.AfterFunc(takenAfter, func() {
		g.Lock.Lock()
		defer g.Lock.Unlock()
		if !s.free && g.asking {
			g.Taken()
		}
	})
}

// held is how long calls are held back at least; zero if they are not.
func (g *Gate) held(now time.Time) time.Duration {
	if g.asking {
		return max(g.again.Sub(now), shortestRest)
	}
	if g.paces == nil {
		return 0
	}
	return g.paces.wait(now)
}

// giveUp ends the wait of a caller whose patience has ended, if nothing is served or the pool pauses for longer. A line
// that moves it does not leave.
func (g *Gate) giveUp(s *Slot) error {
	g.Lock.Lock()
	defer g.Lock.Unlock()
	after := g.held(time.Now())
	if !g.asking && after <= s.patience {
		return nil
	}
	g.leave(s)
	return &Held{after}
}

// Told notes what the provider said with the answer to the call in this slot, also with a refusal. Once little remains,
// further callers wait before the provider refuses them: until as much is back as a call takes, and no longer than a
// minute after what was said last. What cannot be is ignored, and a call tries from time to time whether what was said
// is true.
func (s *Slot) Told(a Allowances) {
	g, now := s.gate, time.Now()
	g.Lock.Lock()
	defer g.Lock.Unlock()
	if g.paces == nil {
		g.paces = newPaces(now)
	}
	g.paces.told(a, s, now, g.calls)
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
