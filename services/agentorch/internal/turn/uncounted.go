package turn

import (
	"sync"
	"time"
)

// uncounted is the time of this engine that no run's bounds of time count: the store was away, or the process stood still. It may be used
// concurrently. With a ttl the zero value has seen no such time.
type uncounted struct {
	ttl   time.Duration // a silence that is longer does not count, whatever its cause is found to be
	mu    sync.Mutex
	total time.Duration // of what is over
	well  time.Time     // when the store answered last
	away  bool
}

// beaten notes a beat that began at a time, and whether the store was away then.
func (u *uncounted) beaten(began time.Time, away bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case away:
		if u.away = true; u.well.IsZero() {
			u.well = began
		}
		return
	case u.silent(time.Now()):
		u.total += time.Since(u.well)
	}
	u.away, u.well = false, time.Now()
}

// stood notes that the process stood still.
func (u *uncounted) stood(gap time.Duration) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.total += gap; u.away {
		return
	}
	u.well = time.Now()
}

// until returns the whole of it.
func (u *uncounted) until(now time.Time) time.Duration {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.silent(now) {
		return u.total + now.Sub(u.well)
	}
	return u.total
}

// silent reports whether the time since the last beat does not count. A process that stood still may come to a run's clock before it beats.
func (u *uncounted) silent(now time.Time) bool {
	return u.away || !u.well.IsZero() && now.Sub(u.well) > u.ttl
}

// missed returns the time since the last append in which the run could not go on, for a reason that lies with the server.
func (a *actor) missed(now time.Time) time.Duration {
	missed := a.engine.uncounted.until(now) - a.seen
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.parked.GetReason() == WaitFault {
		missed = max(missed, now.Sub(a.parked.GetSince().AsTime()))
	}
	return missed
}
