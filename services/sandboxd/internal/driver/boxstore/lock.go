package boxstore

import (
	"context"
	"sync"

	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/driver"
)

// locks serialize the work on each box. The zero value is ready to use. It is safe for concurrent use.
type locks struct {
	mu   sync.Mutex
	busy map[string]chan struct{}
}

// lock waits until no other call works on the box of that id, and returns the function that unlocks it. It fails with
// INVALID_REQUEST for an invalid id, and with ctx's error if ctx ends first.
func (l *locks) lock(ctx context.Context, id string) (unlock func(), err error) {
	if !driver.ValidID(id) {
		return nil, rpcerr.InvalidField("id", "%q is not made of letters, digits and dashes", id)
	}
	for {
		l.mu.Lock()
		busy, ok := l.busy[id]
		if !ok {
			mine := make(chan struct{})
			if l.busy == nil {
				l.busy = map[string]chan struct{}{}
			}
			l.busy[id] = mine
			l.mu.Unlock()
			return func() {
				l.mu.Lock()
				delete(l.busy, id)
				l.mu.Unlock()
				close(mine)
			}, nil
		}
		l.mu.Unlock()
		select {
		case <-busy:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
