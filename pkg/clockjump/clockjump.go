// Package clockjump detects that a process was suspended: its machine slept, the process was stopped, or the wall clock
// was set forward. Deadlines in wall time have then passed without a chance for their holders to extend them.
//
// The monotonic clock does not show it, since it stops with the machine. So a frequent loop reads the wall clock in
// each iteration.
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

// Look returns the wall time since the last look if that is longer than most, the longest time between two looks of a
// running process. It is zero otherwise, at the first look, and if the clock was set back.
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
