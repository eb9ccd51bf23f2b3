package driver

import (
	"context"
	"sync"

	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// ValidID keeps the ids of boxes fit for names of files and containers.
func ValidID(id string) bool {
	for _, c := range id {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && (c < 'A' || c > 'Z') && c != '-' {
			return false
		}
	}
	return id != "" && id[0] != '-' && len(id) <= 100
}

// Lost is the error of a box that is gone.
func Lost(id string) error {
	return rpcerr.Unavailable(errorsv1.ErrorReason_ERROR_REASON_SANDBOX_LOST, "the box %s is gone", id).With("sandbox", id).With("cause", "gone")
}

// Locks lets work on one box be done one after the other. The zero value is ready to use, by many at once.
type Locks struct {
	mu   sync.Mutex
	busy map[string]chan struct{}
}

// Lock waits until nobody works on the box of that id, and gives what ends the caller's own work. It fails with INVALID_REQUEST for
// an id that no box can have, and with ctx's error when ctx ends first.
func (l *Locks) Lock(ctx context.Context, id string) (unlock func(), err error) {
	if !ValidID(id) {
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
