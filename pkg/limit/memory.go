package limit

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"
)

// Memory is a Limiter of one process. The zero value is ready to use.
type Memory struct {
	mu    sync.Mutex
	pools map[string]*pool
}

var _ Limiter = (*Memory)(nil)

// pool is guarded by Memory.mu: its operations are short, and one lock keeps the order of arrival the same for all
// callers.
type pool struct {
	key        string
	fixed      int
	controller *Controller // nil in a fixed pool
	inUse      int
	waiting    int
	lines      []*line // the lines that are not empty, the next to be served first
}

// line is the queue of one tenant.
type line struct {
	tenant  string
	waiters []*waiter
}

// waiter is a caller in a line. Its channel is closed when it gets a slot.
type waiter struct {
	granted chan struct{}
}

// Acquire implements Limiter.
func (m *Memory) Acquire(ctx context.Context, r Request) (release func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	p := m.pool(r)
	if len(p.lines) == 0 && p.inUse < p.limit() {
		p.take()
		m.mu.Unlock()
		return m.releaser(p), nil
	}
	if r.MaxWaiting > 0 && p.waiting >= r.MaxWaiting && !r.Front {
		m.mu.Unlock()
		return nil, ErrFull
	}
	w := &waiter{granted: make(chan struct{})}
	p.enqueue(r, w)
	m.mu.Unlock()

	select {
	case <-w.granted:
		return m.releaser(p), nil
	case <-ctx.Done():
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if !p.remove(r.Tenant, w) { // it was granted in the meantime
		p.free()
	}
	return nil, ctx.Err()
}

func (m *Memory) pool(r Request) *pool {
	p, ok := m.pools[r.Key]
	if !ok {
		p = &pool{key: r.Key, fixed: r.Fixed}
		if r.Adaptive != nil {
			p.controller = NewController(*r.Adaptive)
		}
		if m.pools == nil {
			m.pools = map[string]*pool{}
		}
		m.pools[r.Key] = p
	}
	return p
}

func (m *Memory) releaser(p *pool) func() {
	return sync.OnceFunc(func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		p.free()
	})
}

// Report implements Limiter.
func (m *Memory) Report(_ context.Context, key string, outcome Outcome, subject string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.pools[key]
	if p == nil || p.controller == nil {
		return
	}
	switch outcome {
	case Clean:
		p.controller.Clean(time.Now(), subject)
	case RateLimited:
		p.controller.RateLimited(time.Now(), subject)
	}
	p.admit()
}

// Pools implements Limiter.
func (m *Memory) Pools(context.Context) ([]Pool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	states := make([]Pool, 0, len(m.pools))
	for _, p := range m.pools {
		states = append(states, p.state())
	}
	slices.SortFunc(states, func(a, b Pool) int { return cmp.Compare(a.Key, b.Key) })
	return states, nil
}

// SetMax implements Limiter.
func (m *Memory) SetMax(_ context.Context, key string, n int) (Pool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p, ok := m.pools[key]
	if !ok {
		return Pool{}, ErrUnknownPool
	}
	if p.controller != nil {
		if err := p.controller.SetMax(n, time.Now()); err != nil {
			return Pool{}, err
		}
	} else if n < 1 {
		return Pool{}, ErrTooLow
	} else {
		p.fixed = n
	}
	p.admit()
	return p.state(), nil
}

func (p *pool) limit() int {
	if p.controller != nil {
		return p.controller.Limit()
	}
	return p.fixed
}

func (p *pool) state() Pool {
	s := Pool{Key: p.key, Limit: p.limit(), InUse: p.inUse, Waiting: p.waiting}
	if c := p.controller; c != nil {
		s.Adaptive, s.Min, s.Max, s.History = true, c.min, c.max, slices.Clone(c.history)
	}
	return s
}

func (p *pool) take() {
	p.inUse++
	if p.controller != nil {
		p.controller.Acquired(p.inUse, time.Now())
	}
}

func (p *pool) free() {
	p.inUse--
	p.admit()
}

// admit hands free slots to waiting callers: one to each line in turn.
func (p *pool) admit() {
	for len(p.lines) > 0 && p.inUse < p.limit() {
		l := p.lines[0]
		w := l.waiters[0]
		l.waiters = l.waiters[1:]
		p.lines = p.lines[1:]
		if len(l.waiters) > 0 {
			p.lines = append(p.lines, l)
		}
		p.waiting--
		p.take()
		close(w.granted)
	}
}

func (p *pool) enqueue(r Request, w *waiter) {
	i := slices.IndexFunc(p.lines, func(l *line) bool { return l.tenant == r.Tenant })
	if i < 0 {
		i = len(p.lines)
		p.lines = append(p.lines, &line{tenant: r.Tenant})
	}
	l := p.lines[i]
	if r.Front {
		l.waiters = slices.Insert(l.waiters, 0, w)
	} else {
		l.waiters = append(l.waiters, w)
	}
	p.waiting++
}

// remove removes a waiter from its line and reports whether it was there.
func (p *pool) remove(tenant string, w *waiter) bool {
	i := slices.IndexFunc(p.lines, func(l *line) bool { return l.tenant == tenant })
	if i < 0 {
		return false
	}
	l := p.lines[i]
	at := slices.Index(l.waiters, w)
	if at < 0 {
		return false
	}
	l.waiters = slices.Delete(l.waiters, at, at+1)
	if len(l.waiters) == 0 {
		p.lines = slices.Delete(p.lines, i, i+1)
	}
	p.waiting--
	return true
}
