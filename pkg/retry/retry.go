// Package retry decides when to retry: [Backoff] waits between the attempts of a loop, [Schedule] and [Policy] are the
// documented waits of model calls, and [After] reads the delay in a server's headers. The package is independent of the
// transport; pkg/rpcerr decides which errors are transient.
package retry

import (
	"math"
	"math/rand/v2"
	"time"
)

// Schedule computes growing waits with a random part. The zero value does not wait; Default is the schedule of model
// calls, whose form is Inspect's. Our own loops use [Backoff].
type Schedule struct {
	// First is the wait after the first failure, without its random part. It doubles with each further one.
	First time.Duration
	// Jitter bounds the random part.
	Jitter time.Duration
	// Max bounds a wait, its random part included. Zero is no bound.
	Max time.Duration
	// Random gives numbers from 0 to below 1. Nil takes the one of the process.
	Random func() float64
}

// Default waits 3, 6, 12 … seconds and up to 3 more, at most half an hour.
func Default() Schedule {
	return Schedule{First: 3 * time.Second, Jitter: 3 * time.Second, Max: 30 * time.Minute}
}

// Delay returns how long to sleep after failure n, counted from 1. A positive asked is the server's requested delay: it
// replaces the schedule, with up to a tenth more, and Max bounds it too.
func (s Schedule) Delay(n int, asked time.Duration) time.Duration {
	random := s.Random
	if random == nil {
		random = rand.Float64
	}
	wait := float64(s.First)*math.Pow(2, float64(n-1)) + random()*float64(s.Jitter)
	if asked > 0 {
		wait = float64(asked) * (1 + random()/10)
	}
	if s.Max > 0 {
		wait = min(wait, float64(s.Max))
	}
	return time.Duration(min(wait, math.MaxInt64/2))
}

// Policy decides when to give up. The zero value never does.
type Policy struct {
	// MaxRetries bounds the attempts after the first; nil is no bound, and zero allows one attempt.
	MaxRetries *int
	// Timeout bounds the time since the first attempt began; nil is no bound, and zero allows one attempt. It is
	// checked after a failure and never cuts an attempt.
	Timeout *time.Duration
}

// Allows reports whether another attempt may follow failure n, counted from 1, at elapsed since the first attempt
// began.
func (p Policy) Allows(n int, elapsed time.Duration) bool {
	if p.MaxRetries != nil && n > *p.MaxRetries {
		return false
	}
	return p.Timeout == nil || elapsed < *p.Timeout
}
