package effects

import (
	"sync"
)

// gate bounds the open model calls per account. It holds no goroutine: what does not fit waits in a queue, in order of
// arrival, and is started by whoever leaves.
type gate struct {
	limit int

	mu     sync.Mutex
	queues map[string]*queue
}

type queue struct {
	open    int
	waiting []*ticket
}

// ticket is a place in the queue of an account.
type ticket struct {
	gate    *gate
	account string
	start   func()
	left    bool
	entered bool
}

// ticket makes a ticket for something that start starts once. Start must not block.
func (g *gate) ticket(account string, start func()) *ticket {
	return &ticket{gate: g, account: account, start: start}
}

// enter starts it, now or when there is room, and reports whether it was now. Who holds the ticket must have it before,
// since what starts may leave at once. After leave it does nothing.
func (t *ticket) enter() bool {
	g, account := t.gate, t.account
	g.mu.Lock()
	if t.left {
		g.mu.Unlock()
		return false
	}
	if g.queues == nil {
		g.queues = map[string]*queue{}
	}
	q := g.queues[account]
	if q == nil {
		q = &queue{}
		g.queues[account] = q
	}
	if q.open >= g.limit {
		q.waiting = append(q.waiting, t)
		g.mu.Unlock()
		return false
	}
	q.open++
	t.entered = true
	g.mu.Unlock()
	t.start()
	return true
}

// leave gives the place to the next in the queue. It may be called more than once, and before the ticket was let in: it
// then never is.
func (t *ticket) leave() {
	g := t.gate
	g.mu.Lock()
	if t.left {
		g.mu.Unlock()
		return
	}
	t.left = true
	q := g.queues[t.account]
	var next *ticket
	if t.entered {
		for len(q.waiting) > 0 && next == nil {
			if first := q.waiting[0]; !first.left {
				first.entered, next = true, first
			}
			q.waiting = q.waiting[1:]
		}
		if next == nil {
			if q.open--; q.open == 0 {
				delete(g.queues, t.account)
			}
		}
	}
	g.mu.Unlock()
	if next != nil {
		next.start()
	}
}
