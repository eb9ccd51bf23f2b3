package generate

import (
	"context"
	"slices"
	"sync"
)

// free is what each answer may hold without regard to others, in bytes: nearly all answers are smaller.
const free = 1 << 20

// Answers bounds the memory of the answers that are being read and decoded: of each, and of all together. A large one
// that finds no room is not read on until others have ended; the one that has been read for longest always is, so that
// there is an end to each wait. Of streams only what was said is held. It is safe for concurrent use.
type Answers struct {
	each, total int64

	mu    sync.Mutex
	held  int64
	large []*answer // those that hold more than is free, oldest first
	ended chan struct{}
}

// NewAnswers returns bounds in bytes as received: of each answer, and of what all hold beyond the first MiB of each.
// All together hold total and each at most.
func NewAnswers(each, total int64) *Answers { return &Answers{each: each, total: total} }

// answer is what one answer holds. It belongs to one attempt.
type answer struct {
	of         *Answers
	read, held int64
}

// hold notes that n bytes more were read, and waits until there is room for them. It fails with the cause of ctx.
func (h *answer) hold(ctx context.Context, n int) error {
	h.read += int64(n)
	if h.read <= free {
		return nil
	}
	more := min(int64(n), h.read-free)
	for {
		ended := h.take(more)
		if ended == nil {
			return nil
		}
		select {
		case <-ended:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// take takes room, or returns a channel that is closed when there may be some.
func (h *answer) take(n int64) <-chan struct{} {
	a := h.of
	a.mu.Lock()
	defer a.mu.Unlock()
	if !slices.Contains(a.large, h) {
		a.large = append(a.large, h)
	}
	if a.held+n <= a.total || a.large[0] == h {
		a.held += n
		h.held += n
		return nil
	}
	if a.ended == nil {
		a.ended = make(chan struct{})
	}
	return a.ended
}

// end gives the room back.
func (h *answer) end() {
	if h.read <= free {
		return
	}
	a := h.of
	a.mu.Lock()
	defer a.mu.Unlock()
	a.held -= h.held
	a.large = slices.DeleteFunc(a.large, func(other *answer) bool { return other == h })
	if a.ended != nil {
		close(a.ended)
		a.ended = nil
	}
}
