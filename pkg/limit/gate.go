package limit

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Gate is the part of a pool that is within one process: slots, and the lines of callers that wait for one. A Limiter
// consists of gates, and of the rule by which it sets their slots.
//
// Lock must be held for all methods except Wait, and is held when its functions are called.
type Gate struct {
	// Lock guards the gate. The gates of a limiter share one lock, which keeps the order of arrival the same for all
	// callers. Operations under it are short.
	Lock sync.Locker
	// Took is called with the number of slots in use when a caller has got one; nil is not.
	Took func(inUse int)
	// Freed is called when a caller has freed its slot and no waiting caller got it; nil is not.
	Freed func()
	// Refresh is called before a freed slot goes to a waiting caller, and may call SetSlots; nil is not.
	Refresh func()
	// Taken is called when a call that asks was not refused for takenAfter; see Reported. Nil is not.
	Taken func()

	slots   int
	inUse   int
	waiting int
	lines   []*line // the lines that are not empty, the next to be served first

	asking  bool      // as Reported was told
	again   time.Time // when the last refusal said to ask again
	resting []*Slot
	calls   uint64 // that have begun
	paces   *paces // nil until a provider speaks of its limits
	waker   *time.Timer
}

// line is the queue of one tenant.
type line struct {
	tenant  string
	waiters []*Slot
}

// Slot is a slot that a caller holds, or that it waits for in a line. Its methods are safe for concurrent use.
type Slot struct {
	gate   *Gate
	tenant string
	// granted is closed when the caller gets the slot; nil if it got it at once.
	granted chan struct{}
	free    bool
	// patience is that of the caller.
	patience time.Duration
	call     uint64 // its number among the calls of the gate
	began    time.Time
}

// Began is when the caller got the slot.
func (s *Slot) Began() time.Time { return s.began }

// Told notes what the provider said with the answer to the call in this slot, also with a refusal. Once little remains,
// further callers wait before the provider refuses them: until as much is back as a call takes, and no longer than a
// minute after what was said last. What cannot be is ignored.
func (s *Slot) Told(a Allowances) {
	g, now := s.gate, time.Now()
	g.Lock.Lock()
	defer g.Lock.Unlock()
	if g.paces == nil {
		g.paces = &paces{}
	}
	g.paces.told(a, s, now, g.calls)
	g.admit()
}

// Release frees the slot. Further calls do nothing.
func (s *Slot) Release() {
	s.gate.Lock.Lock()
	defer s.gate.Lock.Unlock()
	s.release()
}

func (s *Slot) release() {
	if !s.free {
		s.free = true
		s.gate.free()
	}
}

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

// Slots returns the number of slots.
func (g *Gate) Slots() int { return g.slots }

// InUse returns the number of slots that callers hold. It exceeds Slots while callers hold slots that were withdrawn.
func (g *Gate) InUse() int { return g.inUse }

// Waiting returns the number of callers in lines.
func (g *Gate) Waiting() int { return g.waiting }

// Lacks reports whether callers wait because there are too few slots.
func (g *Gate) Lacks() bool { return g.waiting > 0 && g.inUse >= g.slots }

// Share is the state of the gate.
func (g *Gate) Share() Share {
	return Share{Slots: g.slots, InUse: g.inUse, Waiting: g.waiting, Pause: g.pause(time.Now())}
}

// SetSlots sets the number of slots. Held slots are not affected.
func (g *Gate) SetSlots(n int) {
	g.slots = n
	g.admit()
}

// held is how long calls are held back at least; zero if they are not.
func (g *Gate) held(now time.Time) time.Duration {
	if g.asking {
		return max(g.again.Sub(now), shortestRest)
	}
	return g.pause(now)
}

// Enter gives the caller a slot, or puts it into its line. It fails with ErrFull or a *Held. The slot must be passed to
// Wait.
func (g *Gate) Enter(r Request) (*Slot, error) {
	s := &Slot{gate: g, tenant: r.Tenant, patience: r.Patience}
	if now := time.Now(); len(g.lines) == 0 && g.inUse < g.slots && g.pause(now) == 0 {
		g.take(s, now)
		return s, nil
	}
	if r.MaxWaiting > 0 && g.waiting >= r.MaxWaiting && !r.Front {
		return nil, ErrFull
	}
	if after := g.held(time.Now()); r.Patience > 0 && after > r.Patience {
		return nil, &Held{after}
	}
	s.granted = make(chan struct{})
	g.enqueue(s, r.Front)
	g.admit()
	return s, nil
}

// Wait waits until the caller holds its slot, and returns it. It fails with a *Held, or with ctx's error if ctx ends
// first.
func (g *Gate) Wait(ctx context.Context, s *Slot) (*Slot, error) {
	if s.granted == nil {
		return s, nil
	}
	var looks <-chan time.Time
	if s.patience > 0 {
		ticker := time.NewTicker(s.patience)
		defer ticker.Stop()
		looks = ticker.C
	}
	for {
		select {
		case <-s.granted:
			return s, nil
		case <-ctx.Done():
			g.Lock.Lock()
			defer g.Lock.Unlock()
			g.leave(s)
			return nil, ctx.Err()
		case <-looks:
			if err := g.giveUp(s); err != nil {
				return nil, err
			}
		}
	}
}

// giveUp ends the wait of a caller if its pool is held back.
func (g *Gate) giveUp(s *Slot) error {
	g.Lock.Lock()
	defer g.Lock.Unlock()
	after := g.held(time.Now())
	if after == 0 {
		return nil
	}
	g.leave(s)
	return &Held{after}
}

// leave ends the wait of a caller.
func (g *Gate) leave(s *Slot) {
	if !g.remove(s) { // it was granted in the meantime
		s.release()
	}
}

func (g *Gate) take(s *Slot, now time.Time) {
	g.inUse++
	g.calls++
	s.call, s.began = g.calls, now
	if g.paces != nil {
		g.paces.took(now)
	}
	if g.asking && g.Taken != nil {
		g.ask(s)
	}
	if g.Took != nil {
		g.Took(g.inUse)
	}
}

func (g *Gate) free() {
	g.inUse--
	if g.Refresh != nil {
		g.Refresh()
	}
	if !g.admit() && g.Freed != nil {
		g.Freed()
	}
}

// pause is how long the next call must wait for what the provider has left.
func (g *Gate) pause(now time.Time) time.Duration {
	if g.paces == nil {
		return 0
	}
	return g.paces.wait(now)
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
		if g.Refresh != nil {
			g.Refresh()
		}
		g.admit()
	})
}

// admit hands free slots to waiting callers, one to each line in turn, and reports whether any got one.
func (g *Gate) admit() (admitted bool) {
	for len(g.lines) > 0 && g.inUse < g.slots {
		now := time.Now()
		if wait := g.pause(now); wait > 0 {
			g.wake(wait)
			break
		}
		l := g.lines[0]
		s := l.waiters[0]
		l.waiters = l.waiters[1:]
		g.lines = g.lines[1:]
		if len(l.waiters) > 0 {
			g.lines = append(g.lines, l)
		}
		g.waiting--
		g.take(s, now)
		close(s.granted)
		admitted = true
	}
	return admitted
}

func (g *Gate) enqueue(s *Slot, front bool) {
	i := g.lineOf(s)
	if i < 0 {
		i = len(g.lines)
		g.lines = append(g.lines, &line{tenant: s.tenant})
	}
	l := g.lines[i]
	if front {
		l.waiters = slices.Insert(l.waiters, 0, s)
	} else {
		l.waiters = append(l.waiters, s)
	}
	g.waiting++
}

// remove removes a caller from its line and reports whether it was there.
func (g *Gate) remove(s *Slot) bool {
	i := g.lineOf(s)
	if i < 0 {
		return false
	}
	l := g.lines[i]
	at := slices.Index(l.waiters, s)
	if at < 0 {
		return false
	}
	l.waiters = slices.Delete(l.waiters, at, at+1)
	if len(l.waiters) == 0 {
		g.lines = slices.Delete(g.lines, i, i+1)
	}
	g.waiting--
	return true
}

func (g *Gate) lineOf(s *Slot) int {
	return slices.IndexFunc(g.lines, func(l *line) bool { return l.tenant == s.tenant })
}
