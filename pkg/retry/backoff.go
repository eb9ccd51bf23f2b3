package retry

import (
	"context"
	"math/rand/v2"
	"time"
)

// Backoff computes the waits between the attempts of one loop: they double from First up to Max. Each wait is shortened
// at random by up to half, so that callers that failed together do not return together. The zero value does not wait. A
// Backoff belongs to one loop; it is not safe for concurrent use.
//
//	for backoff := (retry.Backoff{First: 50 * time.Millisecond, Max: 5 * time.Second}); ; {
//		if err := attempt(ctx); !rpcerr.Transient(err) || backoff.Wait(ctx) != nil {
//			return err
//		}
//	}
type Backoff struct {
	// First is the longest first wait.
	First time.Duration
	// Max bounds every wait. It is not below First.
	Max time.Duration

	next time.Duration // the longest next wait; zero before the first
}

// Next returns the wait after one more failure, for loops that also wait for something else.
func (b *Backoff) Next() time.Duration {
	wait := max(b.next, b.First)
	b.next = min(2*wait, b.Max)
	return wait - time.Duration(rand.Float64()*float64(wait)/2) //nolint:gosec // Jitter needs no secrecy.
}

// Wait sleeps after one more failure. If ctx ends first, it fails with the cause of that.
func (b *Backoff) Wait(ctx context.Context) error { return Sleep(ctx, b.Next()) }

// Reset restarts with First, after a successful attempt.
func (b *Backoff) Reset() { b.next = 0 }
