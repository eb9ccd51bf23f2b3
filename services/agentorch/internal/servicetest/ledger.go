// Package servicetest holds owners of effects for tests, at the seam of the generated clients: a model gateway, a tool
// executor and a sandbox service whose answers are scripted, and which follow the effect protocol. A key is executed
// once; a repeated key attaches to the running effect or gets the stored result; other content under a key is refused;
// a cancelled key is never executed; work outlives its caller. They count executions by key.
//
// They outlive the engine that calls them, as services outlive an orchestrator, so that a test may end one engine and
// start another over the same owners.
package servicetest

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// Ledger keeps effects by key.
type Ledger struct {
	mu      sync.Mutex
	entries map[string]*entry
	counts  map[string]int
	running sync.WaitGroup

	// Deaf is how many calls to release are not answered.
	Deaf atomic.Int32
}

// deaf is the error of a release that is not received; nil if it is.
func (l *Ledger) deaf() error {
	if l.Deaf.Add(-1) >= 0 {
		return rpcerr.ServiceUnavailable("owner", time.Second, "starting")
	}
	return nil
}

// Kept returns the number of keys that are not released.
func (l *Ledger) Kept() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.entries)
}

type entry struct {
	content proto.Message
	cancel  context.CancelFunc
	done    chan struct{}
	result  any
	err     error
}

// do executes work under a key, or attaches to the execution in flight.
func (l *Ledger) do(ctx context.Context, key string, content proto.Message, work func(context.Context) (any, error)) (any, error) {
	l.mu.Lock()
	e := l.entries[key]
	if e == nil {
		e = l.begin(key, content, work)
	}
	l.mu.Unlock()
	if e.content != nil && !proto.Equal(e.content, content) {
		return nil, rpcerr.RequestIDReused(key, "the key %s came with other content:\n%v\n%v", key, e.content, content)
	}
	select {
	case <-e.done:
		return e.result, e.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// begin starts work that outlives its caller.
func (l *Ledger) begin(key string, content proto.Message, work func(context.Context) (any, error)) *entry {
	ctx, cancel := context.WithCancel(context.Background())
	e := &entry{content: proto.Clone(content), cancel: cancel, done: make(chan struct{})}
	if l.entries == nil {
		l.entries, l.counts = map[string]*entry{}, map[string]int{}
	}
	l.entries[key] = e
	l.counts[key]++
	l.running.Go(func() {
		defer close(e.done)
		defer cancel()
		e.result, e.err = work(ctx)
		if ctx.Err() != nil {
			e.result, e.err = nil, rpcerr.EffectCancelled(key, "%s was cancelled", key)
		}
		if e.err != nil && waits(e.err) {
			l.mu.Lock()
			delete(l.entries, key) // it never began
			l.counts[key]--
			l.mu.Unlock()
		}
	})
	return e
}

func waits(err error) bool { return rpcerr.RetryAfter(err) > 0 }

// cancel stops a key, or entombs it.
func (l *Ledger) cancel(key string) (done bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.entries[key]
	if e == nil {
		if l.entries == nil {
			l.entries, l.counts = map[string]*entry{}, map[string]int{}
		}
		e = &entry{done: make(chan struct{}), err: rpcerr.EffectCancelled(key, "%s was cancelled before it began", key)}
		close(e.done)
		l.entries[key] = e
		return false
	}
	select {
	case <-e.done:
		return true
	default:
		e.cancel()
		return false
	}
}

func (l *Ledger) releaseAll(prefix string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.entries, func(key string, _ *entry) bool { return strings.HasPrefix(key, prefix) })
}

func (l *Ledger) release(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.entries, key)
}

// Counts returns how often each key was executed.
func (l *Ledger) Counts() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	counts := map[string]int{}
	for key, n := range l.counts {
		if n != 0 {
			counts[key] = n
		}
	}
	return counts
}

// Total returns the number of executions.
func (l *Ledger) Total() (n int) {
	for _, count := range l.Counts() {
		n += count
	}
	return n
}

// CheckOnce fails the test if a key was executed more than once.
func (l *Ledger) CheckOnce(t testing.TB) {
	t.Helper()
	for key, n := range l.Counts() {
		if n > 1 {
			t.Errorf("%s was executed %d times", key, n)
		}
	}
}

// Wait waits until nothing runs.
func (l *Ledger) Wait() { l.running.Wait() }

func keyOf(parent, id string, more ...string) string {
	key := parent + "|" + id
	for _, m := range more {
		key += "/" + m
	}
	return fmt.Sprint(key)
}
