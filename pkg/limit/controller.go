package limit

import (
	"math"
	"time"
)

// Bounds are the settings of an adaptive limit.
type Bounds struct {
	// Min, Start and Max are the lowest, first and highest limit; 1 ≤ Min ≤ Start ≤ Max.
	Min, Start, Max int
	// Cooldown is how long after a decrease the limit stays.
	Cooldown time.Duration
	// DecreaseFactor is the factor of a decrease, above 0 and below 1.
	DecreaseFactor float64
	// ScaleUp is the part of the limit that an increase adds once a rate limit was met, above 0 and at most 1.
	ScaleUp float64
	// Probing chooses the rule [Prober] in place of [Controller]. Cooldown, DecreaseFactor and ScaleUp do not matter to
	// it.
	Probing bool
}

const (
	// saturation is the part of the limit that must have been in use for it to grow.
	saturation = 0.8
	// shortestRound is the fewest successes after which the limit is looked at again.
	shortestRound = 4
)

// Controller is the rule by which a limit adapts; it has no slots. It works in rounds: a round ends after as many
// clean successes as the limit is high. If the limit was nearly used up in a round, it doubles, or grows slowly after
// the first rate limit. A rate limit lowers it at once and starts a cooldown in which nothing counts.
//
// A Controller is not safe for concurrent use.
type Controller struct {
	level
	successes int
	peak      int
	met       bool // a rate limit was met
	cooldown  time.Time
}

// NewController returns the rule at its first limit.
func NewController(b Bounds) *Controller { return &Controller{level: newLevel(b)} }

// Acquired records the number of slots in use, the newly acquired one included.
func (c *Controller) Acquired(inUse int, now time.Time) {
	if !c.cooling(now) {
		c.peak = max(c.peak, inUse)
	}
}

// Clean notes a success that needed no retry.
func (c *Controller) Clean(now time.Time, subject string) {
	if c.cooling(now) {
		return
	}
	c.successes++
	if c.successes < max(c.limit, shortestRound) {
		return
	}
	saturated := float64(c.peak) >= saturation*float64(c.limit)
	c.newRound()
	switch {
	case !saturated:
	case !c.met:
		c.change(min(2*c.limit, c.max), SlowStart, now, subject)
	default:
		step := max(1, int(math.RoundToEven(float64(c.limit)*c.bounds.ScaleUp)))
		c.change(min(niceUp(c.limit+step), c.max), SteadyStateUp, now, subject)
	}
}

// Retried notes a success after failed attempts, which counts for nothing.
func (c *Controller) Retried(time.Time, string) {}

// RateLimited records an answer that asks to slow down. The requested delay does not matter here: the request itself
// waits for it, and the limit has its own cooldown.
func (c *Controller) RateLimited(now time.Time, subject string) {
	c.newRound()
	c.met = true
	if c.cooling(now) {
		return
	}
	c.cooldown = now.Add(c.bounds.Cooldown)
	c.change(max(niceDown(int(float64(c.limit)*c.bounds.DecreaseFactor)), c.min, 1), RateLimit, now, subject)
}

// cooling reports whether the cooldown lasts. More than a whole one is left only if the clock was set back, and would
// keep the limit for as long.
func (c *Controller) cooling(now time.Time) bool {
	return now.Before(c.cooldown) && c.cooldown.Sub(now) <= c.bounds.Cooldown
}

func (c *Controller) newRound() { c.successes, c.peak = 0, 0 }

// niceUp and niceDown round to numbers that people like to see: below 10 any, else multiples of 5; never below 1.
func niceUp(n int) int {
	if n < 10 {
		return max(n, 1)
	}
	return (n + 4) / 5 * 5
}

func niceDown(n int) int {
	if n < 10 {
		return max(n, 1)
	}
	return n / 5 * 5
}
