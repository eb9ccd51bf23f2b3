package engine

import (
	"sync"
	"time"

	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
)

// fence keeps a replica that could not beat from asking for effects: after its TTL others may own its runs. It may be
// used concurrently.
//
//	beat ──▶ open ── TTL without a beat ──▶ shut ── beat ──▶ open, one lapse more: each effect looks first whether the run is still this replica's
type fence struct {
	mu     sync.Mutex
	beat   time.Time
	lapses int
}

// beaten notes a beat that began at a time and is in the store.
func (f *fence) beaten(began time.Time, ttl time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.beat.IsZero() && elapsed(f.beat, began) > ttl {
		f.lapses++
	}
	f.beat = began
}

// look returns how often the beats have lapsed, and whether the fence is open now.
func (f *fence) look(now time.Time, ttl time.Duration) (lapses int, open bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lapses, elapsed(f.beat, now) <= ttl
}

// elapsed is the longer of the times that passed by the monotonic clock, which stops while the machine sleeps, and by
// the wall clock, which may be set.
func elapsed(from, to time.Time) time.Duration {
	return max(to.Sub(from), to.Round(0).Sub(from.Round(0)))
}

// fenced returns [journal.ErrFenced] where a pending effect found that another replica owns the run.
func fenced(all []mail) error {
	for _, m := range all {
		if m.fenced {
			return journal.ErrFenced
		}
	}
	return nil
}
