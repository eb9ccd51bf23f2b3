package offload

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// roomAgain is when a caller may try again that found no room.
const roomAgain = time.Second

// Room bounds the bytes that the calls of a process take from the blob store and hold at once. A call that finds no
// room is refused and may be sent again: nothing waits for room, so that calls that last long cannot wait for one
// another.
type Room struct {
	max  int64
	held atomic.Int64
}

// NewRoom returns a room for so many bytes.
func NewRoom(maxBytes int64) *Room { return &Room{max: maxBytes} }

// add adds bytes to those that are held, if there is room for them.
func (r *Room) add(size int64) bool {
	for {
		held := r.held.Load()
		if held+size > r.max {
			return false
		}
		if r.held.CompareAndSwap(held, held+size) {
			return true
		}
	}
}

// Share is what one call holds of a room. It is safe for concurrent use. A nil share counts nothing.
type Share struct {
	room    *Room
	service string

	mu     sync.Mutex
	held   int64
	closed bool
	kept   int  // how many hold what the share has, beside its call
	due    bool // the call has released the share, and the last of them is to return it
}

// Share returns the share of a call of a service, which holds nothing yet.
func (r *Room) Share(service string) *Share { return &Share{room: r, service: service} }

// take adds bytes to the share. It fails with SERVICE_UNAVAILABLE if the room has no more.
func (s *Share) take(size int64) error {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil // The call has ended, and drops what it takes.
	}
	if !s.room.add(size) {
		return rpcerr.ServiceUnavailable(s.service, roomAgain,
			"the calls in work hold as many offloaded values as the process has room for, %d bytes; try again", s.room.max)
	}
	s.held += size
	return nil
}

// Release returns what the share holds to the room, once nothing keeps it ([Keep]).
func (s *Share) Release() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.due = s.kept > 0
	if !s.due {
		s.room.held.Add(-s.held)
		s.held = 0
	}
}

// Close releases the share at the end of its call, after which it holds nothing.
func (s *Share) Close() {
	if s == nil {
		return
	}
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.Release()
}

// Keep keeps the share of a call from being returned until done is called: for work that goes on with the values of its
// request when the call has ended.
func Keep(ctx context.Context) (done func()) {
	s := shareOf(ctx)
	if s == nil {
		return func() {}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept++
	return sync.OnceFunc(func() {
		s.mu.Lock()
		s.kept--
		due := s.due && s.kept == 0
		s.mu.Unlock()
		if due {
			s.Release()
		}
	})
}

type shareKey struct{}

// WithShare returns a context in which [TakeRequest] counts for a share.
func WithShare(ctx context.Context, s *Share) context.Context {
	return context.WithValue(ctx, shareKey{}, s)
}

func shareOf(ctx context.Context) *Share {
	s, _ := ctx.Value(shareKey{}).(*Share)
	return s
}
