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
	// Acquired is called with the number of slots in use when a caller has got one. Nil: no callback, as below.
	Acquired func(inUse int)
	// Freed is called when a caller has freed its slot and no waiting caller got it.
	Freed func()
	// Refresh is called before a free slot goes to a waiting caller, and may call SetSlots.
	Refresh func()
	// Accepted is called when a trial call was not refused for acceptedAfter; see Follow.
	Accepted func()

	slots   int
	inUse   int
	waiting int
	lines   []*line // the lines that are not empty, the next to be served first

	tripped  bool      // as the rule was at the last Follow
	retryAt  time.Time // when the last refusal asked for the next call
	backoffs []*Slot   // that no call may use for a while
	calls    uint64    // that have begun
	paces    *paces    // nil until a provider reports its rate limits
	waker    *time.Timer
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
	tries    bool // The call began though too little remained, as the provider said.
}

// Began is when the caller got the slot.
func (s *Slot) Began() time.Time { return s.began }

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

// Enter gives the caller a slot, or puts it into its line. It fails with ErrFull or a *HeldError. The slot must be
// passed to Wait.
func (g *Gate) Enter(r Request, now time.Time) (*Slot, error) {
	s := &Slot{gate: g, tenant: r.Tenant, patience: r.Patience}
	if len(g.lines) == 0 && g.inUse < g.slots && g.pause(now) == 0 {
		g.take(s, now)
		return s, nil
	}
	if r.MaxWaiting > 0 && g.waiting >= r.MaxWaiting && !r.Front {
		return nil, ErrFull
	}
	if after := g.held(now); r.Patience > 0 && after > r.Patience {
		return nil, &HeldError{after}
	}
	s.granted = make(chan struct{})
	g.enqueue(s, r.Front)
	g.admit()
	return s, nil
}

// Wait waits until the caller holds its slot, and returns it. It fails with a *HeldError, or with ctx's error if ctx
// ends first.
func (g *Gate) Wait(ctx context.Context, s *Slot) (*Slot, error) {
	if s.granted == nil {
		return s, nil
	}
	var checks <-chan time.Time
	if s.patience > 0 {
		ticker := time.NewTicker(s.patience)
		defer ticker.Stop()
		checks = ticker.C
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
		case <-checks:
			if err := g.giveUp(s); err != nil {
				return nil, err
			}
		}
	}
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
		s.tries = g.paces.acquired(now)
	}
	if g.tripped && g.Accepted != nil {
		g.acceptLater(s)
	}
	if g.Acquired != nil {
		g.Acquired(g.inUse)
	}
}

func (g *Gate) free() {
	g.inUse--
	g.refresh()
	if !g.admit() && g.Freed != nil {
		g.Freed()
	}
}

func (g *Gate) refresh() {
	if g.Refresh != nil {
		g.Refresh()
	}
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
