package generate

import (
	"context"
	"log/slog"
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
		s.leave(r, f, c)
		return nil, context.Cause(ctx)
	}
	switch {
	case leads:
		c.Notes, c.Attempt = f.notes, f.notes.Attempts
	case f.err != nil:
		c.Notes.Failed = f.notes.Failed
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
