package spool

import "slices"

// Hold keeps a spool's writer from pushing out bytes that a reader has not taken yet. Its methods are safe for
// concurrent use.
type Hold struct {
	spool *Spool
	at    int64 // bytes from here on are held
}

// Hold holds all bytes from offset on, as far as they are kept. The caller releases it.
func (s *Spool) Hold(offset int64) *Hold {
	h := &Hold{s, offset}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.holds = append(s.holds, h)
	return h
}

// Advance ends the hold of the bytes before offset.
func (h *Hold) Advance(offset int64) {
	h.spool.mu.Lock()
	defer h.spool.mu.Unlock()
	h.at = max(h.at, offset)
	h.spool.moved()
}

// Release ends the hold of all bytes. Releasing twice is allowed.
func (h *Hold) Release() {
	if h.release() {
		h.spool.Settle()
	}
}

// release reports whether the spool was to settle when the last hold ends, which it has.
func (h *Hold) release() (settle bool) {
	s := h.spool
	s.mu.Lock()
	defer s.mu.Unlock()
	s.holds = slices.DeleteFunc(s.holds, func(o *Hold) bool { return o == h })
	s.moved()
	if settle = s.unsettled && len(s.holds) == 0; settle {
		s.unsettled = false
	}
	return settle
}

// Held reports whether a reader has bytes still to take. They should be dropped for no other output.
func (s *Spool) Held() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.holds, func(h *Hold) bool { return h.at < s.total })
}

// Hasten makes writers wait for no hold any more.
func (s *Spool) Hasten() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hasty = true
	s.moved()
}

// loose gives how many of n bytes may be pushed out of the tail. A spool that keeps no tail holds nothing. The caller
// holds mu.
func (s *Spool) loose(n int) int {
	if s.hasty || len(s.tail) == 0 {
		return n
	}
	oldest := s.total - int64(len(s.tail))
	for _, h := range s.holds {
		n = min(n, int(max(0, h.at-oldest)))
	}
	return n
}

// moved wakes writers that wait for holds. The caller holds mu.
func (s *Spool) moved() {
	if s.room != nil {
		close(s.room)
		s.room = nil
	}
}
