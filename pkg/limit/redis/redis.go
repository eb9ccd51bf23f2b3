// Package redis is a limit.Limiter that several processes share through Redis.
//
// The limit of a pool and its history are one hash in Redis, and so are the leases: how many slots each replica may
// use until when. A replica spends its slots locally, without Redis, and exchanges with it every tick: it renews its
// lease, says how many slots it wants, brings the outcomes of its calls and returns what it does not need. A pool
// without callers only renews its lease, a few times before it ends.
//
//	Acquire ─▶ limit.Gate ── slots ◀── lease (TTL) ◀── sync.lua ──▶ hash {rule, history, leases}
//	Report  ─▶ limit.Rule, a copy ── compare and set ─────┘
//
// The rule by which a limit adapts is limit.Rule, as in memory: a replica applies it to its copy, and writes the result
// if no other replica wrote in between; otherwise it applies its outcomes to what the other wrote. Slots are divided in
// Redis, equally where they are scarce. A slot that a replica is to return counts as held until its caller has freed it
// and Redis knows.
//
// Redis may be away or lose its data at any time. While it is away, a replica uses its lease until that expires, and
// then its equal part of the limit. When the data are gone, each replica brings what it knows and holds.
package redis

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/evalfleet/evalfleet/pkg/limit"
	"github.com/evalfleet/evalfleet/pkg/redisclient"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// Defaults of a [Config].
const (
	DefaultTTL   = 3 * time.Second
	DefaultEvery = 100 * time.Millisecond
)

const (
	// keep is how long Redis keeps a pool that no replica uses.
	keep = 24 * time.Hour
	// quietAfter is how long a replica keeps the lease of a pool without calls, so that rare calls need no round trip.
	quietAfter = time.Minute
	// maxPools is the number of pools that a replica keeps without use, and of those of other replicas that it shows.
	// Requests name models freely, and most models have a pool of their own. Beyond it a pool loses its lease idleAfter
	// its last call, and the pools that were not used for longest are forgotten.
	maxPools  = 1000
	idleAfter = time.Second
	// maxExchanged bounds the pools of one round trip, so that a long exchange does not exceed syncTimeout.
	maxExchanged = 250
	// syncTimeout bounds an exchange with Redis.
	syncTimeout = redisclient.Timeout
)

// Config makes a [Limiter].
type Config struct {
	// Client is the connection to Redis, which must live until Close has returned. Required.
	Client *redisclient.Client
	// Replica names this process; no other process has the name. Required.
	Replica string
	// Replicas is how many processes are assumed to share the limits, until Redis has been reached for the first time.
	// Zero is 1.
	Replicas int
	// TTL is how long a lease holds, and so for how long the slots of a process that died are lost. Zero is
	// [DefaultTTL].
	TTL time.Duration
	// Every is the time between two exchanges. Zero is [DefaultEvery].
	Every time.Duration
	// Logger gets the beginnings and ends of outages. Nil discards them.
	Logger *slog.Logger

	// clock replaces the clock of Redis in tests.
	clock func() time.Time
}

// Limiter is the part of one process. Close ends it.
type Limiter struct {
	cfg     Config
	scripts scripts
	wake    chan struct{}
	stop    context.CancelFunc
	done    sync.WaitGroup

	// refreshing lets lists that come at once ask Redis once.
	refreshing singleflight.Group

	// turn has a value while there is no exchange with Redis. It is no mutex, so that the wait for it ends with a
	// context.
	turn chan struct{}

	mu       sync.Mutex
	pools    map[string]*pool
	away     bool // the last exchange failed
	closing  bool
	replicas int       // how many are alive
	agreed   time.Time // when the register last had as many
	// theirs is the clock of Redis when this process's clock was at ours.
	theirs, ours time.Time
}

var _ limit.Limiter = (*Limiter)(nil)

// New makes the limiter of a process and starts its exchange with Redis. It does not fail where Redis is away.
func New(cfg Config) *Limiter {
	cfg.TTL, cfg.Every = cmp.Or(cfg.TTL, DefaultTTL), cmp.Or(cfg.Every, DefaultEvery)
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	now := time.Now()
	l := &Limiter{
		cfg: cfg, scripts: newScripts(), wake: make(chan struct{}, 1), turn: make(chan struct{}, 1),
		pools: map[string]*pool{}, replicas: max(cfg.Replicas, 1), theirs: now.UTC().Round(0), ours: now,
	}
	l.turn <- struct{}{}
	ctx, stop := context.WithCancel(context.Background())
	l.stop = stop
	l.done.Go(func() { l.run(ctx) })
	return l
}

// Close returns the leases and ends the exchange. No call may be in flight, and none may follow.
func (l *Limiter) Close() error {
	l.stop()
	l.done.Wait()
	l.mu.Lock()
	l.closing = true
	l.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), 2*syncTimeout)
	defer cancel()
	l.leave(ctx)
	return nil
}

// Acquire implements limit.Limiter. The first caller of a pool waits for an exchange with Redis.
func (l *Limiter) Acquire(ctx context.Context, r limit.Request) (*limit.Slot, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	l.mu.Lock()
	p := l.pool(r.Key)
	p.found(r)
	now := time.Now()
	p.expire(now)
	slot, err := p.gate.Enter(r, now)
	p.observe()
	l.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return p.gate.Wait(ctx, slot)
}

// Report implements limit.Limiter. A rate limit reaches the other replicas at once, a success with the next exchange.
func (l *Limiter) Report(_ context.Context, key string, said limit.Report) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.pools[key]
	if p == nil || p.rule == nil || !p.rule.Adaptive() {
		return
	}
	now, peak, before := l.now(), p.takePeak(), p.rule.Limit()
	p.apply(&event{func(r *limit.Rule) {
		if peak > 0 {
			r.Acquired(peak, now)
		}
		r.Report(said, now)
	}})
	p.gate.Follow(p.rule, said)
	if after := p.rule.Limit(); after < before {
		p.gate.SetSlots(p.gate.Slots() * after / before) // Its part of the cut, before Redis knows of it.
	}
	if said.Outcome == limit.RateLimited {
		p.ask()
	}
}

// Pools implements limit.Limiter: the pools that a replica has used within a day, but of those that only other replicas
// use no more than the maxPools used last. While Redis is away they are those of this process, as it last knew them.
func (l *Limiter) Pools(ctx context.Context) ([]limit.Pool, error) {
	l.refresh(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	states := make([]limit.Pool, 0, len(l.pools))
	for _, p := range l.pools {
		if p.rule != nil {
			states = append(states, p.state())
		}
	}
	slices.SortFunc(states, func(a, b limit.Pool) int { return cmp.Compare(a.Key, b.Key) })
	return states, nil
}

// SetMax implements limit.Limiter. While Redis is away it fails with UNAVAILABLE (STORE_UNAVAILABLE). Where Redis took
// the request and did not answer, the limit may be changed all the same, and the error says so.
func (l *Limiter) SetMax(ctx context.Context, key string, n int) (limit.Pool, error) {
	if n < 1 {
		return limit.Pool{}, limit.ErrTooLow
	}
	l.refresh(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.pools[key]
	if p == nil || p.rule == nil {
		return limit.Pool{}, limit.ErrUnknownPool
	}
	now := l.now()
	change := &event{func(r *limit.Rule) { _ = r.SetMax(n, now) }}
	p.apply(change)
	l.mu.Unlock()
	err := l.sync(ctx, p)
	l.mu.Lock()
	if !p.withdraw(change) {
		return p.state(), nil
	}
	if refused := (*net.OpError)(nil); err == nil || errors.As(err, &refused) && refused.Op == "dial" {
		return limit.Pool{}, rpcerr.StoreUnavailable("io", l.cfg.TTL, "the limit was not changed, since redis does not answer: %w; try again when it does", cmp.Or(err, p.fault, errForestalled))
	}
	return limit.Pool{}, rpcerr.StoreUnavailable("io", l.cfg.TTL, "redis does not answer, and the limit may have been changed: %w; look at it when it does", err)
}

// errForestalled is the cause if other replicas wrote before each attempt to write.
var errForestalled = errors.New("others wrote in between")

// now returns the time by the clock of Redis.
func (l *Limiter) now() time.Time { return l.theirs.Add(time.Since(l.ours)) }

func (l *Limiter) pool(key string) *pool {
	p, ok := l.pools[key]
	if !ok {
		p = &pool{key: key, limiter: l}
		p.gate = limit.Gate{Lock: &l.mu, Acquired: p.acquired, Freed: p.observe, Refresh: func() { p.expire(time.Now()) }, Accepted: p.accepted}
		l.pools[key] = p
	}
	p.seen = time.Now()
	return p
}
