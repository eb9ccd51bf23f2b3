package generate

import (
	"context"
	"errors"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/evalfleet/evalfleet/pkg/cache"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

// route is what calls that share a flight have in common. Equal answers are not enough: a call's terms determine how
// long it runs, who pays for it and how it fails, and a caller must not get a failure caused by another caller's terms.
type route struct {
	cache.Key
	// terms are the whole configuration and the budgets.
	terms string
	// maxWait is how long the call may wait before another attempt.
	maxWait time.Duration
	// patience is how often the call is retried if its configuration has no bound.
	patience int
	// alone is set for a call that flies alone: whether a committed call may be retried depends on what its own
	// follower has seen.
	alone *Call
}

func routeOf(c *Call, key cache.Key) (route, error) {
	terms, err := proto.MarshalOptions{Deterministic: true}.Marshal(c.Config)
	r := route{Key: key, terms: strings.Join(slices.Concat(c.Scopes, []string{string(terms)}), "\n"), maxWait: c.MaxWait, patience: c.Patience}
	if c.Committed {
		r.alone = c
	}
	return r, err
}

// sharedCall is a call in flight on behalf of all callers that joined it. It ends when the last of them leaves.
type sharedCall struct {
	done   chan struct{}
	cancel context.CancelCauseFunc

	mu      sync.Mutex
	callers map[*Call]struct{}
	// failed are the attempts that have failed so far; asleep means that the call sleeps after the last of them.
	failed []*modelv1.FailedAttempt
	asleep bool

	// The rest is final once done is closed.
	outcome  Outcome
	response *provider.Response
	err      error
}

// join adds a call to the flight and notifies it of the failures so far.
func (f *sharedCall) join(c *Call) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.callers[c] = struct{}{}
	if c.OnRetry == nil || len(f.failed) == 0 {
		return
	}
	for _, failed := range f.failed {
		c.OnRetry(failed)
	}
	if !f.asleep {
		c.OnRetry(nil)
	}
}

// leave removes a call, which receives no further events, and returns the number of the remaining calls. The call's
// outcome keeps the failures so far.
func (f *sharedCall) leave(c *Call, o *Outcome) (left int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.callers, c)
	o.Failed = slices.Clone(f.failed)
	if f.asleep && c.OnRetry != nil {
		c.OnRetry(nil)
	}
	return len(f.callers)
}

// broadcast is Call.OnRetry for all joined callers.
func (f *sharedCall) broadcast(failed *modelv1.FailedAttempt) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.asleep = failed != nil; f.asleep {
		f.failed = append(f.failed, failed)
	}
	for c := range f.callers {
		if c.OnRetry != nil {
			c.OnRetry(failed)
		}
	}
}

// leaderSink forwards a streamed answer to the call that began a flight, until that call leaves. Calls that joined
// later get the answer whole, as from the cache.
type leaderSink struct {
	flight *sharedCall
	leader *Call
}

func (s leaderSink) Delta(ctx context.Context, d *modelv1.GenerateDelta) {
	s.pass(func(to Sink) { to.Delta(ctx, d) })
}

func (s leaderSink) Started(ctx context.Context, attempt int, model string) {
	s.pass(func(to Sink) { to.Started(ctx, attempt, model) })
}

func (s leaderSink) Restart(ctx context.Context, attempt int, model string) {
	s.pass(func(to Sink) { to.Restart(ctx, attempt, model) })
}

func (s leaderSink) pass(tell func(Sink)) {
	s.flight.mu.Lock()
	defer s.flight.mu.Unlock()
	if _, there := s.flight.callers[s.leader]; there {
		tell(s.leader.Sink)
	}
}

// join joins the flight on a route, or starts one and leads it. It fails once the cache is closed.
func (s *Cache) join(ctx context.Context, c *Call, o Outcome, r route, policy *modelv1.CachePolicy, next Func) (f *sharedCall, leads bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, false, stopping()
	}
	if f, ok := s.flights[r]; ok {
		f.join(c)
		return f, false, nil
	}
	// The flight may outlive the call that started it, and has no deadline: each caller leaves at its own deadline, and
	// the last one ends the flight.
	work, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	f = &sharedCall{done: make(chan struct{}), cancel: cancel, callers: map[*Call]struct{}{c: {}}}
	s.flights[r] = f
	inner := *c
	inner.OnRetry = f.broadcast
	if c.Sink != nil {
		inner.Sink = leaderSink{f, c}
	}
	s.flying.Go(func() {
		defer cancel(nil)
		s.lead(work, r, f, &inner, &o, policy, next)
	})
	return f, true, nil
}

// lead makes the call of a flight and lands it.
func (s *Cache) lead(ctx context.Context, r route, f *sharedCall, c *Call, o *Outcome, policy *modelv1.CachePolicy, next Func) {
	defer func() {
		if p := recover(); p != nil {
			s.log.ErrorContext(ctx, "a shared model call panicked", "panic", p, "stack", string(debug.Stack()))
			f.err = rpcerr.Internal("a shared model call")
		}
		f.outcome = *o
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.flights[r] == f {
			delete(s.flights, r)
		}
		close(f.done)
	}()
	// An equal call may have been answered since this one's leader looked.
	if output := s.find(ctx, r.Key); output != nil {
		f.response = &provider.Response{Output: output}
		o.Cache = modelv1.CacheUse_CACHE_USE_READ
		return
	}
	f.response, f.err = next(ctx, c, o)
	switch {
	case f.err == nil && !f.response.BrokenOff:
		o.Cache = s.keep(ctx, r.Key, policy, f.response.Output)
	case errors.Is(context.Cause(ctx), errStopping):
		f.err = stopping()
	}
}

// leave gives up waiting; the last one ends the flight.
func (s *Cache) leave(r route, f *sharedCall, c *Call, o *Outcome) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.leave(c, o) > 0 {
		return
	}
	f.cancel(nil)
	if s.flights[r] == f {
		delete(s.flights, r) // later callers start a new flight
	}
}
