package inprocess

import (
	"sync"

	"google.golang.org/grpc/mem"
)

// window is how many bytes may lie unread in one direction of a call before its writer waits; as much as on a stream of
// the network.
const window = 1 << 20

// overhead is what a message that lies in a pipe takes beside its bytes, so that empty ones fill the window too.
const overhead = 64

// pipe is one direction of a call: encoded messages in order, then the end. One goroutine writes and one reads.
type pipe struct {
	mu    sync.Mutex
	queue []mem.BufferSlice
	bytes int
	ended bool

	filled  chan struct{} // wakes the reader
	emptied chan struct{} // wakes the writer
}

func newPipe() pipe {
	return pipe{filled: make(chan struct{}, 1), emptied: make(chan struct{}, 1)}
}

// put adds a message, which is the pipe's from then on, and waits for room before. It returns false when done is closed
// first, or the pipe has ended.
func (p *pipe) put(message mem.BufferSlice, done <-chan struct{}) bool {
	for {
		select {
		case <-done:
			return false
		default:
		}
		p.mu.Lock()
		switch {
		case p.ended:
			p.mu.Unlock()
			return false
		case p.bytes < window:
			p.queue, p.bytes = append(p.queue, message), p.bytes+message.Len()+overhead
			p.mu.Unlock()
			signal(p.filled)
			return true
		}
		p.mu.Unlock()
		select {
		case <-p.emptied:
		case <-done:
			return false
		}
	}
}

// end says that no more come. What is in the pipe is read before.
func (p *pipe) end() {
	p.mu.Lock()
	p.ended = true
	p.mu.Unlock()
	signal(p.filled)
	signal(p.emptied)
}

// take waits for a message. It returns none at the end, and false when done is closed first.
func (p *pipe) take(done <-chan struct{}) (message mem.BufferSlice, ended, ok bool) {
	for {
		p.mu.Lock()
		if len(p.queue) > 0 {
			message = p.queue[0]
			p.queue[0] = nil
			if p.queue = p.queue[1:]; len(p.queue) == 0 {
				p.queue = nil
			}
			p.bytes -= message.Len() + overhead
			p.mu.Unlock()
			signal(p.emptied)
			return message, false, true
		}
		ended = p.ended
		p.mu.Unlock()
		if ended {
			return nil, true, true
		}
		select {
		case <-p.filled:
		case <-done:
			return nil, false, false
		}
	}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
