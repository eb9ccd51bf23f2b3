// Package spool stores the output of a command: the head and the tail of a stream within a fixed number of bytes, with
// true counts of the written bytes, so that a cut is always explicit and a reader that reconnects can continue from any
// offset that is still stored.
package spool

import "sync"

// Spool is one output stream. Its zero value stores nothing; use New. It is safe for one writer and any number of
// concurrent readers.
type Spool struct {
	budget  *Budget
	mu      sync.Mutex
	floor   int // what head and tail each have beside the budget
	headMax int
	tailMax int
	head    []byte
	tail    []byte // ring once it is full
	start   int    // index of the oldest byte of tail
	total   int64
	closed  bool
	more    chan struct{} // closed and replaced when something changes; nil while nobody waits
	holds   []*Hold
	hasty   bool          // writers wait for no hold
	room    chan struct{} // closed when holds change; nil while no writer waits
	// unsettled says that Settle came while there were holds, and is done when the last one ends.
	unsettled bool
}

// New returns a spool that keeps at most limit bytes: the first half from the head, the rest from the tail. It keeps
// less where the budget, unless that is nil, has no room for what is beyond its Floor.
func New(limit int64, budget *Budget) *Spool {
	limit = max(limit, 0)
	return &Spool{headMax: int((limit + 1) / 2), tailMax: int(limit / 2), budget: budget, floor: Floor / 2}
}

// Write appends p. It never fails: bytes that do not fit push out the oldest bytes of the tail. It blocks while those
// are held.
func (s *Spool) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		k, room := s.write(p)
		if p = p[k:]; room != nil {
			<-room
		}
	}
	return n, nil
}

// write appends as much of p as holds allow, and gives what to wait on for the rest; nil where there is none.
func (s *Spool) write(p []byte) (n int, room <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if free := s.headMax - len(s.head); free > 0 {
		n = s.grow(min(free, len(p)), len(s.head), &s.headMax)
		s.head = append(s.head, p[:n]...)
	}
	rest := p[n:]
	if free := s.tailMax - len(s.tail); free > 0 && len(rest) > 0 {
		k := s.grow(min(free, len(rest)), len(s.tail), &s.tailMax)
		s.tail = append(s.tail, rest[:k]...)
		n += k
	}
	s.total += int64(n)
	if rest = p[n:]; len(rest) > 0 {
		k := s.loose(len(rest))
		s.push(rest[:k])
		s.total += int64(k)
		n += k
	}
	s.wake()
	if n < len(p) {
		if s.room == nil {
			s.room = make(chan struct{})
		}
		room = s.room
	}
	return n, room
}

// push overwrites the oldest bytes of the tail. The caller holds mu.
func (s *Spool) push(p []byte) {
	if over := len(p) - len(s.tail); over > 0 {
		p = p[over:]
	}
	for len(p) > 0 {
		k := copy(s.tail[s.start:], p)
		s.start = (s.start + k) % len(s.tail)
		p = p[k:]
	}
}

// grow returns for how many of n more bytes there is room in the budget, in a part that has some. Where it is fewer,
// the part has its final size. The caller holds mu.
func (s *Spool) grow(n, have int, most *int) int {
	free := min(n, max(0, s.floor-have))
	k := free + s.budget.take(n-free)
	if k < n {
		*most = have + k
	}
	return k
}

// charged is what the spool has of the budget. The caller holds mu.
func (s *Spool) charged() int { return max(0, len(s.head)-s.floor) + max(0, len(s.tail)-s.floor) }

// Settle charges the budget with what the spool has kept beside it, for a spool that no bytes come to any more. Where
// the budget has no room, the spool keeps as much less, from its middle. A spool that is held settles when no hold is
// left.
func (s *Spool) Settle() {
	s.mu.Lock()
	if s.unsettled = len(s.holds) > 0; s.unsettled {
		s.mu.Unlock()
		return
	}
	beside := len(s.head) + len(s.tail) - s.charged()
	s.mu.Unlock()
	got := s.budget.take(beside)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.head)+len(s.tail) == 0 {
		s.budget.give(got) // dropped meanwhile
		return
	}
	s.floor = 0
	s.trim(beside - got)
}

// trim drops n bytes: the last of the head, then the first of the tail. The caller holds mu.
func (s *Spool) trim(n int) {
	k := min(n, len(s.head))
	if k > 0 {
		s.head = clip(s.head, len(s.head)-k)
		s.headMax = len(s.head)
	}
	if n -= k; n > 0 {
		s.tail, s.start = s.ring(n, len(s.tail)), 0
		s.tailMax = len(s.tail)
	}
}

// Close marks the end of the stream. It may be called more than once.
func (s *Spool) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.wake()
}

// Drop discards the kept bytes but not their number, so that readers see an explicit gap in their place.
func (s *Spool) Drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.budget.give(s.charged())
	s.head, s.tail, s.start = nil, nil, 0
	s.headMax, s.tailMax = 0, 0
}

// Total is the number of bytes written so far.
func (s *Spool) Total() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.total
}

// Kept is the number of bytes held in memory.
func (s *Spool) Kept() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return int64(len(s.head) + len(s.tail))
}

// Chunk is a piece of a stream.
type Chunk struct {
	// Offset of the first byte of Data in the stream.
	Offset int64
	// Data is the caller's own copy; empty when nothing is there at or after the offset that was asked for.
	Data []byte
	// Skipped is the number of bytes between the offset that was asked for and Offset that are no longer kept.
	Skipped int64
	// End is true when the stream is closed and this chunk reaches its end.
	End bool
	// More is closed when something is added after this call; set only when Data is empty and End is false.
	More <-chan struct{}
}

// Read gives at most limit bytes from offset on, skipping what is not kept. It never blocks: wait on the chunk's More.
func (s *Spool) Read(offset int64, limit int) Chunk {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := Chunk{Offset: min(max(offset, 0), s.total)}
	if c.Offset < int64(len(s.head)) {
		c.Data = clip(s.head[c.Offset:], limit)
	} else if tailAt := s.total - int64(len(s.tail)); len(s.tail) > 0 || c.Offset < tailAt {
		if c.Offset < tailAt {
			c.Skipped = tailAt - c.Offset
			c.Offset = tailAt
		}
		c.Data = s.ring(int(c.Offset-tailAt), limit)
	}
	reached := c.Offset+int64(len(c.Data)) == s.total
	c.End = s.closed && reached
	if len(c.Data) == 0 && reached && !c.End {
		if s.more == nil {
			s.more = make(chan struct{})
		}
		c.More = s.more
	}
	return c
}

// Joined gives at most limit bytes of the kept output, head and tail joined, and where the middle was left out: the
// length of the head part, or -1 when nothing is missing.
func (s *Spool) Joined(limit int64) (data []byte, cutAt int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	kept := int64(len(s.head) + len(s.tail))
	if kept <= limit {
		data = make([]byte, 0, kept)
		data = append(data, s.head...)
		data = append(data, s.ring(0, len(s.tail))...)
		if kept == s.total {
			return data, -1
		}
		return data, int64(len(s.head))
	}
	limit = max(limit, 0)
	headLen := min(int(limit+1)/2, len(s.head))
	tailLen := int(limit) - headLen
	data = append(data, s.head[:headLen]...)
	if tailLen <= len(s.tail) {
		return append(data, s.ring(len(s.tail)-tailLen, tailLen)...), int64(headLen)
	}
	// The tail part reaches back into the head's bytes; that happens only when nothing is missing between them.
	fromHead := tailLen - len(s.tail)
	data = append(data, s.head[len(s.head)-fromHead:]...)
	return append(data, s.ring(0, len(s.tail))...), int64(headLen)
}

// ring copies at most limit bytes of the tail from its i-th oldest byte on. The caller holds mu.
func (s *Spool) ring(i, limit int) []byte {
	n := min(len(s.tail)-i, limit)
	if n <= 0 {
		return nil
	}
	out := make([]byte, n)
	at := (s.start + i) % len(s.tail)
	k := copy(out, s.tail[at:])
	copy(out[k:], s.tail)
	return out
}

func clip(b []byte, limit int) []byte {
	return append([]byte(nil), b[:min(len(b), max(limit, 0))]...)
}

// wake notifies waiting readers of a change. The caller holds mu.
func (s *Spool) wake() {
	if s.more != nil {
		close(s.more)
		s.more = nil
	}
}
