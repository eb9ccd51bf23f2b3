package limit

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"
)

// maxIdle is the number of pools without callers that Memory keeps at least, and half of the most: requests may name
// pools freely. Those that were not used for longest are forgotten, with what they learned, but no
// limit that was set by hand.
const maxIdle = 1000

// Memory is a Limiter of one process. The zero value is ready to use.
type Memory struct {
	mu    sync.Mutex
	pools map[string]*pool
}

var _ Limiter = (*Memory)(nil)

// pool is guarded by Memory.mu. Its gate has as many slots as its rule allows.
type pool struct {
	key  string
	rule *Rule
	gate Gate
	used time.Time // when it last had a new caller
	set  bool      // SetMax changed its limit
}

// Acquire implements Limiter.
func (m *Memory) Acquire(ctx context.Context, r Request) (*Slot, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	p := m.pool(r)
	slot, err := p.gate.Enter(r, p.used)
	m.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return p.gate.Wait(ctx, slot)
}

func (m *Memory) pool(r Request) *pool {
	p, ok := m.pools[r.Key]
	if !ok {
		p = &pool{key: r.Key, rule: NewRule(r)}
		p.gate = Gate{Lock: &m.mu}
		if p.rule.Adaptive() {
			p.gate.Acquired = func(inUse int) { p.rule.Acquired(inUse, time.Now()) }
			p.gate.Accepted = func() {
				p.rule.Accepted(time.Now())
				p.follow(Report{})
			}
		}
		p.gate.SetSlots(p.rule.Limit())
		if m.pools == nil {
			m.pools = map[string]*pool{}
		}
		m.forget()
		m.pools[r.Key] = p
	}
	p.used = time.Now()
	return p
}

// forget forgets idle pools, half of them at a time, so that few callers pay for it.
func (m *Memory) forget() {
	if len(m.pools) < 2*maxIdle {
		return
	}
	var idle []*pool
	for _, p := range m.pools {
		if p.gate.InUse() == 0 && p.gate.Waiting() == 0 && !p.set {
			idle = append(idle, p)
		}
	}
	slices.SortFunc(idle, func(a, b *pool) int { return b.used.Compare(a.used) })
	for _, p := range idle[min(len(idle), maxIdle):] {
		delete(m.pools, p.key)
	}
}

// Report implements Limiter.
func (m *Memory) Report(_ context.Context, key string, r Report) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p := m.pools[key]; p != nil {
		p.rule.Report(r, time.Now())
		p.follow(r)
	}
}

// follow updates the gate after the rule has got a report.
func (p *pool) follow(r Report) {
	p.gate.Follow(p.rule, r)
	p.gate.SetSlots(p.rule.Limit())
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
	if err := p.rule.SetMax(n, time.Now()); err != nil {
		return Pool{}, err
	}
	p.set = true
	p.gate.SetSlots(p.rule.Limit())
	return p.state(), nil
}

func (p *pool) state() Pool {
	here := p.gate.Share()
	s := Pool{Key: p.key, InUse: here.InUse, Waiting: here.Waiting, Here: here}
	p.rule.Describe(&s)
	return s
}
