package generate

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/evalfleet/evalfleet/pkg/cache"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/respcache"
)

// Cache answers calls that ask for it from stored answers, and coalesces equal calls in flight with equal terms. A
// cache that fails counts as an empty one: the first failure in a row is logged and the call made. It is safe for
// concurrent use.
type Cache struct {
	store cache.Cache
	log   *slog.Logger

	mu      sync.Mutex
	flights map[route]*sharedCall
	closed  bool
	// flying counts calls in flight, those that no caller waits for included.
	flying sync.WaitGroup

	reading, writing outage
}

// outage is set while the store fails at what it is asked to do, so that the first failure alone is logged.
type outage struct{ on atomic.Bool }

// begins notes the end of a read or a write, and reports whether it is the first that failed.
func (o *outage) begins(err error) bool { return !o.on.Swap(err != nil) && err != nil }

// NewCache returns a cache over a store, which must live until Close has returned.
func NewCache(store cache.Cache, log *slog.Logger) *Cache {
	return &Cache{store: store, log: log, flights: map[route]*sharedCall{}}
}

// Stage puts the cache before next.
func (s *Cache) Stage(next Func) Func {
	return func(ctx context.Context, c *Call, o *Outcome) (*provider.Response, error) {
		if !c.Config.GetCache().GetEnabled() {
			return next(ctx, c, o)
		}
		return s.answer(ctx, c, o, next)
	}
}

// Close cancels the calls in flight and waits until nothing of them runs. Pending and later callers fail with
// UNAVAILABLE (SERVICE_UNAVAILABLE).
func (s *Cache) Close() {
	s.mu.Lock()
	s.closed = true
	for _, f := range s.flights {
		f.cancel(errStopping)
	}
	s.mu.Unlock()
	s.flying.Wait()
}

// errStopping is why Close ends a call.
var errStopping = errors.New("the model gateway is stopping")

// stopping is the error of a call that Close cancels.
func stopping() error { return rpcerr.ServiceUnavailable("modelgw", time.Second, "%w", errStopping) }

func (s *Cache) answer(ctx context.Context, c *Call, o *Outcome, next Func) (*provider.Response, error) {
	policy := c.Config.GetCache().GetPolicy()
	if policy == nil {
		policy = &modelv1.CachePolicy{}
	}
	conversation, err := c.Hash(respcache.Digest)
	if err != nil {
		return nil, rpcerr.InvalidField("messages", "%v", err)
	}
	key, err := respcache.Key(respcache.Input{
		Project: c.Origin.Project, Model: c.Model.FullName(), Account: c.Model.Account, Servers: c.Model.Servers(), Client: c.Client,
		Args: c.Args, Epoch: c.Origin.Attribution.GetEpoch(), Conversation: conversation,
		Tools: c.Tools, Choice: c.Choice, Config: c.Config, Policy: policy,
	})
	if err != nil {
		return nil, rpcerr.InvalidField("config.cache", "%v", err)
	}
	if output := s.find(ctx, key); output != nil {
		o.Cache = modelv1.CacheUse_CACHE_USE_READ
		return &provider.Response{Output: output}, nil
	}
	r, err := routeOf(c, key)
	if err != nil {
		return nil, rpcerr.InvalidField("config", "%v", err)
	}
	f, leads, err := s.join(ctx, c, *o, r, policy, next)
	if err != nil {
		return nil, err
	}
	start := time.Now()
	select {
	case <-f.done:
	case <-ctx.Done():
		s.leave(r, f, c, o)
		return nil, context.Cause(ctx)
	}
	switch {
	case leads:
		*o = f.outcome
	case f.err != nil:
		o.Failed = f.outcome.Failed
	}
	if f.err != nil {
		return nil, f.err
	}
	// Every receiver of an answer may modify it, the leader too.
	own := &provider.Response{Output: proto.CloneOf(f.response.Output), Warnings: slices.Clone(f.response.Warnings), BrokenOff: f.response.BrokenOff}
	if leads {
		own.Call = f.response.Call
		return own, nil
	}
	o.Cache = modelv1.CacheUse_CACHE_USE_READ
	o.Queued += time.Since(start)
	return own, nil
}

func (s *Cache) find(ctx context.Context, key cache.Key) *modelv1.ModelOutput {
	value, ok, err := s.store.Get(ctx, key)
	if ctx.Err() == nil && s.reading.begins(err) {
		s.log.WarnContext(ctx, "response cache cannot be read; this is not logged again until it can", "error", err)
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

// keep stores an answer in the cache, if it may be stored.
func (s *Cache) keep(ctx context.Context, key cache.Key, policy *modelv1.CachePolicy, output *modelv1.ModelOutput) modelv1.CacheUse {
	life, forever, err := respcache.Lifetime(policy)
	if err != nil || !respcache.Keepable(output) || !forever && life < 0 {
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
	if errors.Is(err, cache.ErrNotKept) {
		return modelv1.CacheUse_CACHE_USE_UNSPECIFIED
	}
	if ctx.Err() == nil && s.writing.begins(err) {
		s.log.WarnContext(ctx, "response cache cannot be written; this is not logged again until it can", "error", err)
	}
	if err != nil {
		return modelv1.CacheUse_CACHE_USE_UNSPECIFIED
	}
	return modelv1.CacheUse_CACHE_USE_WRITE
}
