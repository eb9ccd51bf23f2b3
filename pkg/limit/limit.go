// Package limit bounds concurrency under a key, such as requests in flight to one account of a provider.
//
// A key names a pool. A pool has a limit, which is fixed or adapts to the other side's capacity, and a queue. The queue
// is fair between tenants: each has its own line, and lines are served in turn. A retry after a failed attempt may be
// put at the head of its own line, never of another's.
//
// Limiter is the port. Memory is the implementation for one process, limit/redis the one that several processes share.
// Both consist of a [Gate], which has the slots and the queue of a process, and a [Rule], which has the limit. A limit
// adapts by [Controller], the rule that recorded cases hold to, or by [Prober], which uses more of the capacity.
// Callers also wait where the provider reports that little of a rate limit of its own remains; see [Slot.Observe].
// limittest contains the suite that every implementation passes, limittrial the trial of the rules.
package limit

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ErrFull is returned where a queue may not grow further.
var ErrFull = errors.New("too many callers wait")

// HeldError is the error of a caller whose patience is shorter than the time for which its pool is held back: the
// provider refuses all calls, or has reported that little of a rate limit remains.
type HeldError struct {
	// After is how long the pool is still held back, at least.
	After time.Duration
}

// Error says why the caller got no slot.
func (h *HeldError) Error() string {
	return fmt.Sprintf("calls are held back for %s: the provider refuses all of them, or has little left of a rate limit; try again then", h.After.Round(time.Millisecond))
}

// ErrUnknownPool is returned for a key under which nothing was ever acquired.
var ErrUnknownPool = errors.New("no such pool")

// ErrTooLow is the error for a limit below 1, at which no request could run.
var ErrTooLow = errors.New("a limit must be at least 1")

// Limiter admits callers to pools. All methods are safe for concurrent use.
type Limiter interface {
	// Acquire waits for a slot of the pool under r.Key and returns it; the caller must release it. The first call for a
	// key makes the pool with r's bounds; later bounds are ignored. It fails with ErrFull at once if r.MaxWaiting
	// callers wait already, with a *HeldError if r.Patience ends, and with ctx's error if ctx ends first.
	Acquire(ctx context.Context, r Request) (*Slot, error)
	// Report reports how a request went to an adaptive pool; a fixed one ignores it. A key without a pool is ignored.
	Report(ctx context.Context, key string, r Report)
	// Pools returns the state of all pools, by key.
	Pools(ctx context.Context) ([]Pool, error)
	// SetMax changes the limit of a fixed pool, or the highest limit of an adaptive one. Held slots are not affected.
	// It fails with ErrUnknownPool or ErrTooLow.
	SetMax(ctx context.Context, key string, n int) (Pool, error)
}

// Request is a request for a slot.
type Request struct {
	// Key names the pool.
	Key string
	// Tenant names the line of the caller; lines are served in turn.
	Tenant string
	// Front puts the caller at the head of the line: for an attempt that follows a failed one.
	Front bool
	// MaxWaiting bounds the callers that wait for this pool; zero is no bound. Callers at the front are always
	// admitted.
	MaxWaiting int
	// Patience bounds the wait in a pool that is held back; see [HeldError]. A caller that would have to wait for
	// longer fails at once, and one that has waited as long fails while the provider refuses all calls. A wait in a
	// line that moves is not bounded. Zero is no bound.
	Patience time.Duration
	// Fixed is the limit of a pool that does not adapt; it must be positive unless Adaptive is set.
	Fixed int
	// Adaptive are the bounds of a pool that adapts; nil makes a fixed one.
	Adaptive *Bounds
}

// Outcome is how a request went, as far as the limit is concerned.
type Outcome int

// Outcomes.
const (
	// Clean is a success that needed no retry.
	Clean Outcome = iota + 1
	// Retried is a success after failed attempts.
	Retried
	// RateLimited is an answer that asks to slow down.
	RateLimited
)

// Report is how a request went.
type Report struct {
	Outcome Outcome
	// Subject is the name in the history of the limit, such as a model.
	Subject string
	// RetryAfter is the wait that an answer with RateLimited asks for; zero is none.
	RetryAfter time.Duration
}

// Pool is the state of a pool, in all processes that share it.
type Pool struct {
	Key      string
	Limit    int
	InUse    int
	Waiting  int
	Adaptive bool
	// Here is the part of this process; the whole if it shares with no other.
	Here Share
	// Min and Max are the bounds of an adaptive pool.
	Min, Max int
	// History are the changes of the limit, oldest first, at most MaxHistory.
	History []Change
}

// Share is the part of one process in a pool.
type Share struct {
	// Slots is how many slots the process may use now.
	Slots   int
	InUse   int
	Waiting int
	// Pause is how long the next call must wait although a slot is free, since the provider reports that little of a
	// rate limit remains; see [Slot.Observe].
	Pause time.Duration
}

// MaxHistory is how many changes of a limit are kept.
const MaxHistory = 200

// Change is a change of a limit.
type Change struct {
	Time     time.Time
	Old, New int
	Reason   Reason
	// Subject is the cause of the change, such as a model; empty for a manual one.
	Subject string
}

// Reason is the reason why a limit changed.
type Reason string

// Reasons.
const (
	SlowStart     Reason = "slow_start"
	SteadyStateUp Reason = "steady_state_up"
	RateLimit     Reason = "rate_limit"
	Manual        Reason = "manual"
)
