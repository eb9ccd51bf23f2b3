package limit

import (
	"context"
	"slices"
	"sync"
)

// Gate is the part of a pool that is within one process: slots, and the lines of callers that wait for one. A Limiter
// consists of gates, and of the rule by which it sets their slots.
//
// Lock must be held for all methods except Wait, and is held when Took, Freed and Refresh are called.
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

	slots   int
	inUse   int
	waiting int
	lines   []*line // the lines that are not empty, the next to be served first
}

// line is the queue of one tenant.
type line struct {
	tenant  string
	waiters []*Caller
}

// Caller is a caller that has a slot or is in a line.
type Caller struct {
	tenant string
	// granted is closed when the caller gets a slot; nil if it got one at once.
	granted chan struct{}
}

// Slots returns the number of slots.
func (g *Gate) Slots() int { return g.slots }

// InUse returns the number of slots that callers hold. It exceeds Slots while callers hold slots that were withdrawn.
func (g *Gate) InUse() int { return g.inUse }

// Waiting returns the number of callers in lines.
func (g *Gate) Waiting() int { return g.waiting }

// SetSlots sets the number of slots. Held slots are not affected.
func (g *Gate) SetSlots(n int) {
	g.slots = n
	g.admit()
}

// Enter gives the caller a slot, or puts it into its line. It fails with ErrFull. The caller must be passed to Wait.
func (g *Gate) Enter(r Request) (*Caller, error) {
	c := &Caller{tenant: r.Tenant}
	if len(g.lines) == 0 && g.inUse < g.slots {
		g.take()
		return c, nil
	}
	if r.MaxWaiting > 0 && g.waiting >= r.MaxWaiting && !r.Front {
		return nil, ErrFull
	}
	c.granted = make(chan struct{})
	g.enqueue(c, r.Front)
	return c, nil
}

// Wait waits until the caller has its slot, and returns the function that frees it, which may be called more than once.
// It fails with ctx's error if ctx ends first.
func (g *Gate) Wait(ctx context.Context, c *Caller) (release func(), err error) {
	if c.granted != nil {
		select {
		case <-c.granted:
		case <-ctx.Done():
			g.leave(c)
			return nil, ctx.Err()
		}
	}
	return sync.OnceFunc(func() {
		g.Lock.Lock()
		defer g.Lock.Unlock()
		g.free()
	}), nil
}

// leave ends the wait of a caller.
func (g *Gate) leave(c *Caller) {
	g.Lock.Lock()
	defer g.Lock.Unlock()
	if !g.remove(c) { // it was granted in the meantime
		g.free()
	}
}

func (g *Gate) take() {
	g.inUse++
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

// admit hands free slots to waiting callers, one to each line in turn, and reports whether any got one.
func (g *Gate) admit() (admitted bool) {
	for len(g.lines) > 0 && g.inUse < g.slots {
		l := g.lines[0]
		c := l.waiters[0]
		l.waiters = l.waiters[1:]
		g.lines = g.lines[1:]
		if len(l.waiters) > 0 {
			g.lines = append(g.lines, l)
		}
		g.waiting--
		g.take()
		close(c.granted)
		admitted = true
	}
	return admitted
}

func (g *Gate) enqueue(c *Caller, front bool) {
	i := g.lineOf(c)
	if i < 0 {
		i = len(g.lines)
		g.lines = append(g.lines, &line{tenant: c.tenant})
	}
	l := g.lines[i]
	if front {
		l.waiters = slices.Insert(l.waiters, 0, c)
	} else {
		l.waiters = append(l.waiters, c)
	}
	g.waiting++
}

// remove removes a caller from its line and reports whether it was there.
func (g *Gate) remove(c *Caller) bool {
	i := g.lineOf(c)
	if i < 0 {
		return false
	}
	l := g.lines[i]
	at := slices.Index(l.waiters, c)
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

func (g *Gate) lineOf(c *Caller) int {
	return slices.IndexFunc(g.lines, func(l *line) bool { return l.tenant == c.tenant })
}
