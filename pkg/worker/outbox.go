package worker

import (
	"sync"

	workerv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/worker/v1"
)

// roomy is how many frames may wait before a worker's own frames are no longer read.
const roomy = 256

// outbox is the queue of frames for one worker, in order. Adding never blocks. The frames that the host initiates are
// bounded by the calls in flight; its replies are bounded by room.
type outbox struct {
	mu     sync.Mutex
	frames []*workerv1.ConnectResponse
	added  chan struct{}
	taken  chan struct{}
}

func newOutbox() outbox {
	return outbox{added: make(chan struct{}, 1), taken: make(chan struct{}, 1)}
}

func (o *outbox) push(frame *workerv1.ConnectResponse) {
	o.mu.Lock()
	o.frames = append(o.frames, frame)
	o.mu.Unlock()
	signal(o.added)
}

// next waits for a frame and removes it; nil means that the connection has ended.
func (o *outbox) next(over <-chan struct{}) *workerv1.ConnectResponse {
	for {
		o.mu.Lock()
		if len(o.frames) > 0 {
			frame := o.frames[0]
			o.frames[0] = nil
			if o.frames = o.frames[1:]; len(o.frames) == 0 {
				o.frames = nil
			}
			o.mu.Unlock()
			signal(o.taken)
			return frame
		}
		o.mu.Unlock()
		select {
		case <-o.added:
		case <-over:
			return nil
		}
	}
}

// room waits until few frames are queued; false means that the connection has ended.
func (o *outbox) room(over <-chan struct{}) bool {
	for {
		o.mu.Lock()
		n := len(o.frames)
		o.mu.Unlock()
		if n < roomy {
			return true
		}
		select {
		case <-o.taken:
		case <-over:
			return false
		}
	}
}

func (o *outbox) empty() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.frames) == 0
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
