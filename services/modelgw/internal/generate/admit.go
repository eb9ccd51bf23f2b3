package generate

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/evalfleet/evalfleet/pkg/chat"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/limit"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/seconds"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

// keySuffix precedes the number of a credential in the name of its pool. The account's own has none. fixedSuffix and
// batchSuffix distinguish the pools of a fixed limit, and of calls in batches, from the adaptive pool of the same
// credential.
const (
	keySuffix   = "@key"
	fixedSuffix = "@fixed"
	batchSuffix = "@batch"
)

// batchConnections is the number of calls that wait for batches of one pool: spec/model.md §5.1.
const batchConnections = 10_000

// compactSuffix distinguishes the pool of compactions, and compactions is its limit.
const (
	compactSuffix = "@compact"
	compactions   = 10
)

// countSuffix distinguishes the pool of questions for numbers of tokens, and counts is its limit: spec/model.md §10.
const (
	countSuffix = "@count"
	counts      = 10
)

// elsewherePatience is how long a call waits in a pool that is held back before it takes another credential that is
// ready.
const elsewherePatience = time.Second

// queueRetry is the retry delay for a caller that found the queue full.
const queueRetry = time.Second

// Admission says how calls are admitted.
type Admission struct {
	// MaxWaiting bounds the callers that wait for one pool; zero is no bound.
	MaxWaiting int
	// Probing lets pools adapt by [limit.Prober], unless the call that makes a pool sets what only [limit.Controller]
	// has.
	Probing bool
}

// Admit starts an attempt when the pool of its account has a slot, and reports its outcome to an adaptive pool.
// Projects are served in turn; an attempt that follows a failed one is at the head of its project's line.
// Metrics are those of the limiter's pools.
func Admit(limiter limit.Limiter, metrics *PoolMetrics, a Admission) Stage {
	return func(next Func) Func {
		return func(ctx context.Context, c *Call, o *Outcome) (*provider.Response, error) {
			r, err := poolOf(c, o.Attempts > 0, a.Probing)
			if err != nil {
				return nil, err
			}
			r.MaxWaiting, r.Patience = a.MaxWaiting, c.MaxWait
			if c.elsewhere {
				r.Patience = elsewherePatience
			}
			metrics.note(r.Key, c.Model, false)
			start := time.Now()
			slot, err := limiter.Acquire(ctx, r)
			o.Queued += time.Since(start)
			switch {
			case errors.Is(err, limit.ErrFull):
				account := c.Model.Kind.Name + "/" + c.Model.Account
				return nil, rpcerr.ConnectionQueueFull(account, queueRetry, "%d calls wait for connections of %s; try again later", a.MaxWaiting, account)
			case err != nil:
				return nil, held(c, err)
			}
			defer slot.Release()
			o.slot = slot
			response, err := next(ctx, c, o)
			metrics.note(r.Key, c.Model, err == nil)
			if r.Adaptive != nil {
				report(ctx, limiter, r.Key, c, o.Attempts, err)
			}
			return response, err
		}
	}
}

// held is the error of a call that got no slot. For a pool that is held back it is a rate limit of the provider.
func held(c *Call, err error) error {
	if h, ok := errors.AsType[*limit.HeldError](err); ok {
		return &provider.Error{Provider: c.Model.Kind.Name, Class: provider.RateLimit, RetryAfter: h.After, Message: h.Error()}
	}
	return err
}

// report notifies a pool of a success, with or without retries, and of a rate limit. Other failures say nothing about
// the limit.
func report(ctx context.Context, limiter limit.Limiter, key string, c *Call, attempts int, err error) {
	r := limit.Report{Subject: c.Model.FullName()}
	failure, _ := provider.As(err)
	switch {
	case err == nil && attempts <= 1:
		r.Outcome = limit.Clean
	case err == nil:
		r.Outcome = limit.Retried
	case failure != nil && failure.Class == provider.RateLimit:
		r.Outcome, r.RetryAfter = limit.RateLimited, failure.RetryAfter
	default:
		return
	}
	limiter.Report(context.WithoutCancel(ctx), key, r)
}

// poolOf returns the pool of a call, and its bound if this call creates it. Again means that an attempt of the call
// failed before; probing is of an [Admission].
func poolOf(c *Call, again, probing bool) (limit.Request, error) {
	caps := c.Model.Constant()
	key := c.Model.Kind.Name + "/" + c.Model.Account
	if caps.ConnectionKey != "" {
		key += "/" + caps.ConnectionKey
	}
	if c.Model.Key > 0 {
		if caps.ConnectionKey == "" {
			key += "/default"
		}
		key += keySuffix + strconv.Itoa(c.Model.Key)
	}
	r := limit.Request{Key: key, Tenant: c.Origin.Project, Front: again}
	switch {
	case c.Compact != nil:
		r.Key, r.Fixed = key+compactSuffix, compactions
		return r, nil
	case c.Counts:
		r.Key, r.Fixed = key+countSuffix, counts
		return r, nil
	}
	bounds, err := chat.Adaptive(c.Config)
	if err != nil {
		return r, rpcerr.InvalidField("config", "%v", err)
	}
	if bounds != nil {
		r.Adaptive = boundsOf(bounds)
		r.Adaptive.Probing = probing && !setsRule(c.Config.GetAdaptiveConnections())
		return r, nil
	}
	r.Fixed = provider.DefaultConnections
	if c.Batched != nil {
		r.Key += batchSuffix
		r.Fixed = batchConnections
	} else {
		r.Key += fixedSuffix
	}
	if n := c.Config.GetMaxConnections(); n > 0 {
		r.Fixed = int(n)
	}
	return r, nil
}

// setsRule reports whether a configuration sets what only [limit.Controller] has.
func setsRule(a *modelv1.AdaptiveConnections) bool {
	return a != nil && (a.CooldownSeconds != nil || a.DecreaseFactor != nil || a.ScaleUpPercent != nil)
}

func boundsOf(a *modelv1.AdaptiveConnections) *limit.Bounds {
	return &limit.Bounds{
		Min:            int(a.GetMin()),
		Start:          int(a.GetStart()),
		Max:            int(a.GetMax()),
		Cooldown:       seconds.Duration(a.GetCooldownSeconds()),
		DecreaseFactor: a.GetDecreaseFactor(),
		ScaleUp:        a.GetScaleUpPercent(),
	}
}
