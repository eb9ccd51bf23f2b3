package engine

import (
	"sync"
	"time"

	"github.com/evalfleet/evalfleet/services/agentorch/internal/engine/waits"
)

// excludedTime is the time of this engine that no run's time limits count: the store was away, or the process was
// suspended. It reads the wall clock, as the limits do, since the monotonic clock stops while the machine sleeps. It is
// safe for concurrent use. With a ttl the zero value has seen no such time.
type excludedTime struct {
	ttl   time.Duration // a silence that is longer does not count, whatever its cause is found to be
	mu    sync.Mutex
	total time.Duration // of completed periods
	well  time.Time     // when the store answered last, by the wall clock
	away  bool
}

// noteBeat records a beat that started at began, and whether the store was away.
func (u *excludedTime) noteBeat(began time.Time, away bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if away {
		if u.away = true; u.well.IsZero() {
			u.well = began.Round(0)
		}
		return
	}
	u.close(time.Now())
	u.away = false
}

// noteClockJump records that the process was suspended. While the store is away, that time is part of the outage.
func (u *excludedTime) noteClockJump() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.away {
		u.close(time.Now())
	}
}

// close ends the open period at now.
func (u *excludedTime) close(now time.Time) {
	u.total += u.silence(now)
	u.well = now.Round(0)
}

// until returns the whole of it.
func (u *excludedTime) until(now time.Time) time.Duration {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.total + u.silence(now)
}

// silence returns the time since the store's last answer, if that time does not count. A process that was suspended may
// reach a run's clock before its next beat.
func (u *excludedTime) silence(now time.Time) time.Duration {
	if u.well.IsZero() {
		return 0
	}
	silence := now.Round(0).Sub(u.well)
	if !u.away && silence <= u.ttl {
		return 0
	}
	return max(0, silence) // The clock may be set back.
}

// missed returns the time since the last append in which the run could not progress because of the server.
func (a *actor) missed(now time.Time) time.Duration {
	missed := a.engine.uncounted.until(now) - a.seen
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.parked.GetReason() == waits.Fault {
		missed = max(missed, now.Sub(a.parked.GetSince().AsTime()))
	}
	return missed
}
