package effects

import (
	"sync"
)

// gate bounds the open model calls per account. It holds no goroutine: calls above the bound wait in a queue, in order
// of arrival, and each call that leaves starts the next.
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

// ticket returns a ticket for something that start starts once. Start must not block.
func (g *gate) ticket(account string, start func()) *ticket {
	return &ticket{gate: g, account: account, start: start}
}

// enter starts the call, now or when there is room, and reports whether it started now. Store the ticket before calling
// enter, since the started call may leave at once. After leave, enter does nothing.
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

// leave passes the place to the next call in the queue. It is idempotent. If the ticket still waits, it never starts.
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
