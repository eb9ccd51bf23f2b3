package effects

import (
	"context"
	"iter"
	"slices"
	"time"

	"google.golang.org/grpc/codes"

	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/retry"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// Release is a result that its owner may forget, since it is in the journal.
type Release struct {
	owner  owner
	parent string
	key    string // the request's
	// calls are tool calls of the request.
	calls []*toolv1.CallRef
	// sandbox is the sandbox of a command.
	sandbox string
}

// owner is a method by which results are released.
type owner string

// EndsWithRun reports whether the owner forgets the result at the end of its run at the latest. Results of commands
// stay with their sandbox until they are released.
func (r *Release) EndsWithRun() bool { return r.owner != execs }

const (
	generates owner = "ReleaseGenerate"
	stages    owner = "ReleaseTools"
	execs     owner = "ReleaseExec"
	answers   owner = "workers"
)

// share is the set of results that one owner may forget.
type share struct {
	pending []Release
	busy    bool          // a call to the owner is open
	backoff retry.Backoff // between failures
	next    time.Time     // it is not called before
}

const (
	// maxReleases bounds the queue per owner; releases beyond it are dropped, and the results expire.
	maxReleases = 100_000
	// releaseBatch bounds the keys of one call.
	releaseBatch = 500
	// releaseTimeout bounds one call, since connections wait for an unreachable owner.
	releaseTimeout = 5 * time.Second
	// maxReleasePause bounds the pause after failures.
	maxReleasePause = time.Minute
)

// Release queues results to be forgotten by their owners; [Caller.Flush] sends them in batches. Releases that are lost
// with the process are repeated at the end of the run, or the results go with its sandbox.
func (c *Caller) Release(these ...*Release) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, one := range these {
		if one != nil {
			c.addRelease(*one)
		}
	}
}

func (c *Caller) addRelease(r Release) {
	s := c.release[r.owner]
	if s == nil {
		s = &share{backoff: retry.Backoff{First: firstPause, Max: maxReleasePause}}
		c.release[r.owner] = s
	}
	if len(s.pending) < maxReleases {
		s.pending = append(s.pending, r)
	}
}

// Flush sends the queued releases to each owner that has not failed just now, unless a call to it is in flight. It
// calls owners concurrently.
func (c *Caller) Flush(ctx context.Context) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for o, s := range c.release {
		if len(s.pending) == 0 || s.busy || time.Now().Before(s.next) {
			continue
		}
		pending := s.pending
		s.pending, s.busy = nil, true
		c.start(func() { c.flushed(o, c.send(ctx, o, pending), ctx.Err() != nil) })
	}
}

// flushed puts back the releases that an owner did not receive.
func (c *Caller) flushed(o owner, left []Release, ended bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.release[o]
	later := s.pending
	s.pending, s.busy = left, false
	switch {
	case len(left) == 0:
		s.backoff.Reset()
	case !ended:
		s.next = time.Now().Add(s.backoff.Next())
	}
	for _, r := range later {
		c.addRelease(r)
	}
}

// send calls an owner and returns the releases that it did not receive. It stops after the first call that finds the
// owner unreachable.
func (c *Caller) send(ctx context.Context, o owner, pending []Release) (left []Release) {
	for batch := range batches(o, pending) {
		if len(left) > 0 || c.away(ctx, o, batch) {
			left = append(left, batch...)
		}
	}
	return left
}

// away sends one batch to an owner and reports whether the owner was unreachable. Any other failure is final: results
// that are not forgotten expire.
func (c *Caller) away(ctx context.Context, o owner, batch []Release) bool {
	ctx, cancel := context.WithTimeout(ctx, releaseTimeout)
	defer cancel()
	var err error
	switch first := batch[0]; o {
	case answers:
		err = c.deps.Workers.Release(ctx, first.parent, keysOf(batch))
	case stages:
		_, err = c.deps.Tools.ReleaseTools(ctx, &toolv1.ReleaseToolsRequest{Parent: first.parent, RequestId: first.key, Calls: first.calls})
	case execs:
		_, err = c.deps.Sandboxes.ReleaseExec(ctx, &sandboxv1.ReleaseExecRequest{Sandbox: first.sandbox, RequestIds: keysOf(batch)})
	case generates:
		_, err = c.deps.Models.ReleaseGenerate(ctx, &modelv1.ReleaseGenerateRequest{Parent: first.parent, RequestIds: keysOf(batch)})
	}
	if err == nil {
		return false
	}
	code := rpcerr.Code(err)
	return ctx.Err() != nil || code == codes.Unavailable || code == codes.DeadlineExceeded
}

// batches splits the releases of one owner into calls.
func batches(o owner, pending []Release) iter.Seq[[]Release] {
	if o == stages { // A call names one stage.
		return slices.Chunk(pending, 1)
	}
	type place struct{ parent, sandbox string }
	groups := map[place][]Release{}
	for _, p := range pending {
		at := place{p.parent, p.sandbox}
		groups[at] = append(groups[at], p)
	}
	return func(yield func([]Release) bool) {
		for _, group := range groups {
			for batch := range slices.Chunk(group, releaseBatch) {
				if !yield(batch) {
					return
				}
			}
		}
	}
}

func keysOf(all []Release) []string {
	keys := make([]string, len(all))
	for i, one := range all {
		keys[i] = one.key
	}
	return keys
}
