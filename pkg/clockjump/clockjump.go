// Package clockjump notices that a process stood still: its machine slept, the process was stopped, or the wall clock
// was set forward. Deadlines that are kept as wall time have then passed with no chance for their holders to prolong
// them.
//
// The monotonic clock does not show it, since it stops with the machine. So a frequent loop reads the wall clock in
// each round.
package clockjump

import (
	"sync"
	"time"
)

// Detector compares looks at the wall clock. The zero value has not looked yet. It is safe for concurrent use.
type Detector struct {
	mu   sync.Mutex
	last time.Time
}

// Look returns the wall time since the last look where that is longer than most, the longest time that may lie between
// two looks of a process that runs. It is zero otherwise, at the first look, and where the clock was set back.
func (d *Detector) Look(now time.Time, most time.Duration) time.Duration {
	now = now.Round(0) // without the monotonic reading
	d.mu.Lock()
	defer d.mu.Unlock()
	last := d.last
	d.last = now
	if gap := now.Sub(last); !last.IsZero() && gap > most {
		return gap
	}
	return 0
}
