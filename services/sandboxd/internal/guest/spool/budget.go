package spool

import "sync"

// Floor is what a spool that is written to keeps whatever the budget says, in bytes, within its own limit: half of it
// from the head, half from the tail.
const Floor = 64 << 10

// Budget bounds what all spools that share it keep beyond their floors. The nil budget has no bound. It is safe for
// concurrent use.
type Budget struct {
	evict func() bool

	mu   sync.Mutex
	left int64
}

// NewBudget makes a budget of so many bytes. Where they are used up, evict is called, which drops a spool that no
// process writes to; it is false where there is none.
func NewBudget(bytes int64, evict func() bool) *Budget { return &Budget{left: bytes, evict: evict} }

// take gives how many of n bytes there is room for.
func (b *Budget) take(n int) int {
	if b == nil || n == 0 {
		return n
	}
	for {
		b.mu.Lock()
		if b.left >= int64(n) {
			b.left -= int64(n)
			b.mu.Unlock()
			return n
		}
		b.mu.Unlock()
		if !b.evict() {
			break
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	k := min(int64(n), b.left)
	b.left -= k
	return int(k)
}

func (b *Budget) give(n int) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.left += int64(n)
}
