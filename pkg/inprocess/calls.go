package inprocess

import (
	"maps"
	"slices"
	"sync"

	"google.golang.org/grpc/status"
)

// calls are those under way, at a server or on a connection.
type calls struct {
	done chan struct{} // closed when there is none and none will come

	mu     sync.Mutex
	closed bool
	all    map[*call]struct{}
}

func newCalls() calls {
	return calls{done: make(chan struct{}), all: map[*call]struct{}{}}
}

// add takes a call on, unless closed.
func (s *calls) add(c *call) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.all[c] = struct{}{}
	return true
}

// remove forgets a call that was added.
func (s *calls) remove(c *call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, c)
	if s.closed && len(s.all) == 0 {
		close(s.done)
	}
}

// close takes no more.
func (s *calls) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.closed = true
	if len(s.all) == 0 {
		close(s.done)
	}
}

// cut takes no more and ends those there are. Their handlers may run on, and each is here until its handler has
// returned.
func (s *calls) cut(why *status.Status) {
	s.close()
	s.mu.Lock()
	all := slices.Collect(maps.Keys(s.all))
	s.mu.Unlock()
	for _, c := range all {
		c.finish(why)
	}
}
