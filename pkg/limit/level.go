package limit

import "time"

// level is the limit of a pool that adapts, between bounds, and how it came about.
type level struct {
	bounds   Bounds
	min, max int // as SetMax left them
	limit    int
	history  *History
}

func newLevel(b Bounds) level { return level{bounds: b, min: b.Min, max: b.Max, limit: b.Start} }

// Limit returns the limit now.
func (l *level) Limit() int { return l.limit }

// SetMax sets the highest limit manually. A lower one takes effect at once, a higher one only allows the limit to grow.
// It fails with ErrTooLow.
func (l *level) SetMax(n int, now time.Time) error {
	if n < 1 {
		return ErrTooLow
	}
	l.max = n
	l.min = min(l.bounds.Min, n)
	if l.limit > n {
		l.change(n, Manual, now, "")
	}
	return nil
}

// change sets the limit and records the change.
func (l *level) change(limit int, reason Reason, now time.Time, subject string) {
	if limit != l.limit {
		l.history = l.history.with(Change{Time: now, Old: l.limit, New: limit, Reason: reason, Subject: subject})
		l.limit = limit
	}
}
