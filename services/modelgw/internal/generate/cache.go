package generate

import (
	"context"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/evalfleet/evalfleet/pkg/cache"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/respcache"
)

// Cache answers from what was answered before, for calls that ask for it, and lets equal calls in flight share one, if they are made on equal
// terms. A cache that fails is as good as an empty one: the failure is logged and the call made.
func Cache(store cache.Cache, log *slog.Logger) Stage {
	s := &sharing{store: store, log: log, flights: map[route]*flight{}}
	return func(next Func) Func {
		return func(ctx context.Context, c *Call) (*provider.Response, error) {
			if !c.Config.GetCache().GetEnabled() {
				return next(ctx, c)
			}
			return s.answer(ctx, c, next)
		}
	}
}

// sharing is the state of the stage.
type sharing struct {
	store cache.Cache
	log   *slog.Logger

	mu      sync.Mutex
	flights map[route]*flight
}

// route is what calls have in common that share a flight. Equal answers are not enough: how long a call goes on, who pays for it and what it then fails with
// come with its terms, and a failure by the terms of another is none of a caller's.
type route struct {
	cache.Key
	// terms are the whole configuration and the budgets.
	terms string
	// alone is set for a call that flies alone: whether a committed one may be tried again depends on what its own follower has seen.
	alone *Call
}

func routeOf(c *Call, key cache.Key) (route, error) {
	terms, err := proto.MarshalOptions{Deterministic: true}.Marshal(&modelv1.GenerateRequest{Config: c.Config, BudgetScopes: c.Scopes})
	r := route{Key: key, terms: string(terms)}
	if c.Committed {
		r.alone = c
	}
	return r, err
}

// flight is a call on its way on behalf of everybody who waits for it. It ends when the last of them leaves.
type flight struct {
	done   chan struct{}
	cancel context.CancelFunc
	// waiting is guarded by sharing.mu.
	waiting int

	// The rest is final once done is closed.
	notes    Notes
	response *provider.Response
	err      error
}

func (s *sharing) answer(ctx context.Context, c *Call, next Func) (*provider.Response, error) {
	policy := c.Config.GetCache().GetPolicy()
	if policy == nil {
		policy = &modelv1.CachePolicy{}
	}
	key, err := respcache.Key(respcache.Input{
		Project: c.Origin.Project, Model: c.Model.FullName(), Account: c.Model.Account, BaseURL: c.BaseURL, Args: c.Args,
		Epoch: c.Origin.Attribution.GetEpoch(), Messages: c.Messages, Tools: c.Tools, Choice: c.Choice, Config: c.Config, Policy: policy,
	})
	if err != nil {
		return nil, rpcerr.InvalidField("config.cache", "%v", err)
	}
	if output := s.find(ctx, key); output != nil {
		c.Notes.Cache = modelv1.CacheUse_CACHE_USE_READ
		return &provider.Response{Output: output}, nil
	}
	r, err := routeOf(c, key)
	if err != nil {
		return nil, rpcerr.InvalidField("config", "%v", err)
	}
	f, leads := s.board(ctx, c, r, policy, next)
	start := time.Now()
	select {
	case <-f.done:
	case <-ctx.Done():
		s.leave(r, f)
		return nil, context.Cause(ctx)
	}
	if leads {
		c.Notes, c.Attempt = f.notes, f.notes.Attempts
	}
	if f.err != nil {
		return nil, f.err
	}
	// Whoever has an answer may change it, the leader too.
	own := &provider.Response{Output: proto.CloneOf(f.response.Output), Warnings: slices.Clone(f.response.Warnings)}
	if leads {
		own.Call = f.response.Call
		return own, nil
	}
	c.Notes.Cache = modelv1.CacheUse_CACHE_USE_READ
	c.Notes.Queued += time.Since(start)
	return own, nil
}

// board joins the flight on a route, or starts one and leads it.
func (s *sharing) board(ctx context.Context, c *Call, r route, policy *modelv1.CachePolicy, next Func) (f *flight, leads bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f, ok := s.flights[r]; ok {
		f.waiting++
		return f, false
	}
	// The flight may outlive the one who started it, and has no deadline: each who waits leaves at their own, and the last one ends it.
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	f = &flight{done: make(chan struct{}), cancel: cancel, waiting: 1}
	s.flights[r] = f
	inner := *c
	go func() {
		defer cancel()
		s.fly(work, r, f, &inner, policy, next)
	}()
	return f, true
}

// fly makes the call of a flight and lands it.
func (s *sharing) fly(ctx context.Context, r route, f *flight, c *Call, policy *modelv1.CachePolicy, next Func) {
	defer func() {
		if p := recover(); p != nil {
			s.log.ErrorContext(ctx, "a shared model call panicked", "panic", p, "stack", string(debug.Stack()))
			f.err = rpcerr.Internal("a shared model call")
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.flights[r] == f {
			delete(s.flights, r)
		}
		close(f.done)
	}()
	f.response, f.err = next(ctx, c)
	if f.err == nil {
		c.Notes.Cache = s.keep(ctx, r.Key, policy, f.response.Output)
	}
	f.notes = c.Notes
}

// leave gives up waiting; the last one ends the flight.
func (s *sharing) leave(r route, f *flight) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.waiting--; f.waiting == 0 {
		f.cancel()
		if s.flights[r] == f {
			delete(s.flights, r) // whoever comes now starts anew
		}
	}
}

func (s *sharing) find(ctx context.Context, key cache.Key) *modelv1.ModelOutput {
	value, ok, err := s.store.Get(ctx, key)
	if err != nil {
		s.log.WarnContext(ctx, "response cache cannot be read", "error", err)
	}
	if err != nil || !ok {
		return nil
	}
	output := &modelv1.ModelOutput{}
	if err := proto.Unmarshal(value, output); err != nil {
		s.log.WarnContext(ctx, "an entry of the response cache cannot be read", "error", err)
		return nil
	}
	return output
}

// keep puts an answer into the cache, where it may be kept.
func (s *sharing) keep(ctx context.Context, key cache.Key, policy *modelv1.CachePolicy, output *modelv1.ModelOutput) modelv1.CacheUse {
	life, forever, err := respcache.Lifetime(policy)
	if err != nil || !respcache.Keepable(output) || !forever && life <= 0 {
		return modelv1.CacheUse_CACHE_USE_UNSPECIFIED
	}
	var expires time.Time
	if !forever {
		expires = time.Now().Add(life)
	}
	value, err := proto.Marshal(output)
	if err == nil {
		err = s.store.Put(ctx, key, value, expires)
	}
	if err != nil {
		s.log.WarnContext(ctx, "response cache cannot be written", "error", err)
		return modelv1.CacheUse_CACHE_USE_UNSPECIFIED
	}
	return modelv1.CacheUse_CACHE_USE_WRITE
}
