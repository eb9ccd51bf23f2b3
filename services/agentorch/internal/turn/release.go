package turn

import (
	"context"
	"iter"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"

	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// release is a result that its owner may forget, since it is in the journal.
type release struct {
	parent string
	// key is the request's.
	key string
	// calls are the ids of its tool calls; nil for a model call or an exec.
	calls []string
	// sandbox is where an exec ran.
	sandbox string
	// worker says that a worker answered; parent is then the project's id.
	worker bool
	// boxes says that it is all that is kept of the making of a run's sandboxes; key is then the run's name.
	boxes bool
}

// owner of the effect, whose share of the releases goes its own way.
func (r release) owner() string {
	switch {
	case r.worker:
		return workersOwner
	case r.boxes:
		return boxesOwner
	case r.calls != nil:
		return toolexec
	case r.sandbox != "":
		return sandboxd
	}
	return modelgw
}

// workersOwner is this service itself, which keeps the results of workers.
const workersOwner = "workers"

// boxesOwner is sandboxd for what it keeps of the making of sandboxes, which is released run by run.
const boxesOwner = "sandboxd/runs"

// releaser tells owners in batches, off the path of the runs, each owner beside the others. What is lost with the process expires with the owners. It may be used concurrently.
type releaser struct {
	deps Deps

	mu     sync.Mutex
	shares map[string]*share // by owner
}

// share is what one owner may forget.
type share struct {
	pending []release
	busy    bool          // someone tells the owner now
	pause   time.Duration // after the failures in a row so far
	next    time.Time     // it is not told before
}

const (
	// maxReleases bounds what waits for an owner; the rest is left to expire.
	maxReleases = 100_000
	// releaseBatch bounds the keys of one call.
	releaseBatch = 500
	// releaseTimeout bounds one call: connections wait for an owner that is away.
	releaseTimeout = 5 * time.Second
	// maxReleasePause bounds the pause after failures.
	maxReleasePause = time.Minute
)

func newReleaser(deps Deps) *releaser { return &releaser{deps: deps, shares: map[string]*share{}} }

func (r *releaser) add(these ...release) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, one := range these {
		s := r.shares[one.owner()]
		if s == nil {
			s = &share{}
			r.shares[one.owner()] = s
		}
		if len(s.pending) < maxReleases {
			s.pending = append(s.pending, one)
		}
	}
}

// flush tells each owner that has not failed just now, unless someone does so already. Start runs a function beside others.
func (r *releaser) flush(ctx context.Context, start func(func())) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for owner, s := range r.shares {
		if len(s.pending) == 0 || s.busy || time.Now().Before(s.next) {
			continue
		}
		pending := s.pending
		s.pending, s.busy = nil, true
		start(func() { r.done(owner, r.tell(ctx, owner, pending), ctx.Err() != nil) })
	}
}

// done takes back what an owner did not hear.
func (r *releaser) done(owner string, left []release, ended bool) {
	r.mu.Lock()
	s := r.shares[owner]
	later := s.pending
	s.pending, s.busy = left, false
	switch {
	case len(left) == 0:
		s.pause = 0
	case !ended:
		s.pause = min(max(2*s.pause, firstPause), maxReleasePause)
		s.next = time.Now().Add(s.pause)
	}
	r.mu.Unlock()
	r.add(later...)
}

// tell tells an owner and returns what it did not hear: after the first call that fails because it is away it is asked no more.
func (r *releaser) tell(ctx context.Context, owner string, pending []release) (left []release) {
	for batch := range batches(owner, pending) {
		if len(left) > 0 || r.away(ctx, owner, batch) {
			left = append(left, batch...)
		}
	}
	return left
}

// away tells an owner one batch and reports whether it did not hear. Any other failure is final: what it has not forgotten expires.
func (r *releaser) away(ctx context.Context, owner string, batch []release) bool {
	ctx, cancel := context.WithTimeout(ctx, releaseTimeout)
	defer cancel()
	var err error
	switch first := batch[0]; owner {
	case workersOwner:
		err = r.deps.Workers.Release(ctx, first.parent, keysOf(batch))
	case toolexec:
		_, err = r.deps.Tools.ReleaseTools(ctx, &toolv1.ReleaseToolsRequest{Parent: first.parent, RequestId: first.key, CallIds: first.calls})
	case boxesOwner:
		_, err = r.deps.Sandboxes.ReleaseRunSandboxes(ctx, &sandboxv1.ReleaseRunSandboxesRequest{Parent: first.parent, Runs: keysOf(batch)})
	case sandboxd:
		_, err = r.deps.Sandboxes.ReleaseExec(ctx, &sandboxv1.ReleaseExecRequest{Sandbox: first.sandbox, RequestIds: keysOf(batch)})
	default:
		_, err = r.deps.Models.ReleaseGenerate(ctx, &modelv1.ReleaseGenerateRequest{Parent: first.parent, RequestIds: keysOf(batch)})
	}
	if err == nil {
		return false
	}
	code := rpcerr.Code(err)
	return ctx.Err() != nil || code == codes.Unavailable || code == codes.DeadlineExceeded
}

// batches cuts what one owner is told into calls.
func batches(owner string, pending []release) iter.Seq[[]release] {
	if owner == toolexec { // A call names one stage.
		return slices.Chunk(pending, 1)
	}
	type place struct{ parent, sandbox string }
	groups := map[place][]release{}
	for _, p := range pending {
		at := place{p.parent, p.sandbox}
		groups[at] = append(groups[at], p)
	}
	return func(yield func([]release) bool) {
		for _, group := range groups {
			for batch := range slices.Chunk(group, releaseBatch) {
				if !yield(batch) {
					return
				}
			}
		}
	}
}

func keysOf(all []release) []string {
	keys := make([]string, len(all))
	for i, one := range all {
		keys[i] = one.key
	}
	return keys
}
