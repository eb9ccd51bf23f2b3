package redis

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/evalfleet/evalfleet/pkg/limit"
)

// maxRounds bounds the rounds of an exchange. A second one is for outcomes where another replica wrote in between, for
// slots to return, and for callers that came in the meantime; more are rare, and the next tick is near.
const maxRounds = 5

// exchange is one round of a pool with Redis: what the replica writes, and the answer.
type exchange struct {
	pool *pool
	sent time.Time
	// replica is empty if the process only looks at a pool that it does not know.
	replica string

	held, want, spare, inUse, peak, waiting, replicas int
	// known is the rule that Redis should have, unless it is lost there. If write is set, next is to replace it; last
	// is its last event.
	known, next base
	limit       int
	lost, write bool
	last        *event

	answer *redis.Cmd
}

// answer is the answer of Redis to an exchange.
type answer struct {
	clock   time.Time
	rule    base // without the texts that have not changed
	swapped bool
	grant   int
	others  others
}

// run exchanges with Redis every tick, and in between for pools that ask for it, until ctx ends. Failures are logged
// where they arise.
func (l *Limiter) run(ctx context.Context) {
	tick := time.NewTicker(l.cfg.Every)
	defer tick.Stop()
	var beaten time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.wake:
			_ = l.sync(ctx, l.chosen(func(p *pool) bool { return p.asked })...)
		case <-tick.C:
			if time.Since(beaten) >= l.cfg.TTL/3 && l.beat(ctx) == nil {
				beaten = time.Now()
				l.forget()
			}
			now := time.Now()
			_ = l.sync(ctx, l.chosen(func(p *pool) bool { return p.due(now) })...)
		}
	}
}

func (l *Limiter) chosen(choose func(*pool) bool) []*pool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.DeleteFunc(slices.Collect(maps.Values(l.pools)), func(p *pool) bool { return !choose(p) })
}

// forget forgets pools without use. Redis has their rules, until it forgets them too.
func (l *Limiter) forget() {
	now := time.Now()
	quiet := l.chosen(func(p *pool) bool { return p.quiet && p.idle() && len(p.pending) == 0 })
	slices.SortFunc(quiet, func(a, b *pool) int { return b.seen.Compare(a.seen) })
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, p := range quiet {
		if p.quiet && (i >= maxPools || now.Sub(p.seen) >= keep) {
			delete(l.pools, p.key)
		}
	}
}

// sync exchanges pools with Redis. It fails if Redis does not answer within [syncTimeout] for each [maxExchanged]
// pools.
func (l *Limiter) sync(ctx context.Context, pools ...*pool) error {
	select {
	case <-l.turn:
		defer func() { l.turn <- struct{}{} }()
	case <-ctx.Done():
		return ctx.Err()
	}
	for some := range slices.Chunk(pools, maxExchanged) {
		if err := l.exchange(ctx, some); err != nil {
			return err
		}
	}
	return nil
}

// exchange exchanges pools in one round trip, and those that need it in further ones.
func (l *Limiter) exchange(ctx context.Context, pools []*pool) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), syncTimeout)
	defer cancel()
	for round := 0; len(pools) > 0 && round < maxRounds; round++ {
		exchanges := l.prepare(pools)
		err := l.send(ctx, exchanges)
		if pools, err = l.take(ctx, exchanges, err); err != nil {
			return err
		}
	}
	return nil
}

// prepare makes the exchanges of a round.
func (l *Limiter) prepare(pools []*pool) []*exchange {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	exchanges := make([]*exchange, 0, len(pools))
	for _, p := range pools {
		exchanges = append(exchanges, p.exchange(now))
	}
	return exchanges
}

func (p *pool) exchange(now time.Time) *exchange {
	p.expire(now)
	x := &exchange{pool: p, sent: now, known: p.base, lost: p.lost, inUse: p.gate.InUse(), waiting: p.gate.Waiting(), replicas: p.limiter.replicas}
	x.want = max(p.demand, x.inUse+x.waiting)
	x.peak = max(p.peak, x.inUse)
	p.demand, p.asked = 0, false
	if p.leaves(now) {
		p.gate.SetSlots(0)
		x.want = x.inUse
	} else {
		p.recent = max(x.want, p.recent-(p.recent+7)/8)
		x.spare = max(1, (x.want+3)/4, p.recent-x.want)
	}
	x.held = p.held()
	if p.rule != nil {
		x.replica = p.limiter.cfg.Replica
	}
	if len(p.pending) > 0 || p.lost {
		x.write, x.limit = true, p.rule.Limit()
		x.next.state, x.next.history = p.rule.Encode()
		if len(p.pending) > 0 {
			x.last = p.pending[len(p.pending)-1]
		}
	}
	return x
}

// take takes the answers of a round, and returns the pools that need another one.
func (l *Limiter) take(ctx context.Context, exchanges []*exchange, err error) ([]*pool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var again []*pool
	for _, x := range exchanges {
		if err != nil {
			break
		}
		a, fault := x.read()
		x.pool.judge(ctx, fault)
		if fault == nil && x.pool.take(x, a) {
			again = append(again, x.pool)
		}
	}
	l.report(ctx, err)
	return again, err
}

// report records whether Redis answers, and logs where that has changed. While it does not, pools whose lease has
// expired have this process's part of their limit.
func (l *Limiter) report(ctx context.Context, err error) {
	if away := err != nil; away != l.away {
		l.away = away
		if away {
			l.cfg.Logger.WarnContext(ctx, "redis does not answer: connections to providers are admitted from the leased share until it expires, then from an equal part of each limit",
				"error", err, "replicas", l.replicas)
		} else {
			l.cfg.Logger.InfoContext(ctx, "redis answers: limits are shared again")
		}
	}
	if !l.away {
		return
	}
	now := time.Now()
	for _, p := range l.pools {
		p.expire(now)
	}
}

// judge records whether Redis's answer for the pool can be used, and logs where that has changed. While it cannot, the
// process has its lease until that expires, and then its part of the limit; the other pools are shared.
func (p *pool) judge(ctx context.Context, fault error) {
	if (fault == nil) != (p.fault == nil) {
		if log := p.limiter.cfg.Logger; fault != nil {
			log.WarnContext(ctx, "the limit of an account cannot be read from redis: each replica uses its equal part; if no later version uses it, delete the key",
				"key", p.limiter.redisKey(p), "error", fault)
		} else {
			log.InfoContext(ctx, "the limit of an account is shared again", "key", p.limiter.redisKey(p))
		}
	}
	if p.fault = fault; fault != nil {
		now := time.Now()
		p.expire(now)
		p.quiet = p.leaves(now)
	}
}

// take takes an answer, nil if Redis does not have the pool, and reports whether another round is needed.
func (p *pool) take(x *exchange, a *answer) (again bool) {
	if a == nil {
		p.lost = p.rule != nil
		return p.lost
	}
	now := time.Now()
	p.limiter.theirs, p.limiter.ours = a.clock, now
	p.learn(x, a)
	p.others = a.others
	p.lease = x.sent.Add(p.limiter.cfg.TTL)
	stale := x.write && !a.swapped
	switch {
	case now.Before(p.lease) && stale:
		// A part of a limit that this process may know to be too high. The next round gives the rest.
		p.gate.SetSlots(min(a.grant, p.gate.Slots()))
	case now.Before(p.lease):
		p.gate.SetSlots(a.grant)
	default: // The process was stopped while the answer waited.
		p.expire(now)
	}
	p.counted = max(x.held, a.grant)
	p.short = a.grant < x.want
	p.quiet = p.counted == 0 && x.want == 0 && p.gate.Waiting() == 0
	return stale || p.held() < p.counted || p.gate.Lacks() && !p.short
}

// learn brings the rule up to date.
func (p *pool) learn(x *exchange, a *answer) {
	p.base.version, p.base.historyAt = a.rule.version, a.rule.historyAt
	if a.swapped {
		p.base.state, p.base.history = x.next.state, x.next.history
		p.pending = p.pending[slices.Index(p.pending, x.last)+1:]
		p.lost = false
		return
	}
	p.base.history = a.rule.history
	if a.rule.state != "" {
		p.base.state = a.rule.state
		p.lost = false
		p.rebuild()
	}
}

// refresh asks Redis for all pools, or waits for another caller who does; at most until ctx ends.
func (l *Limiter) refresh(ctx context.Context) {
	asked := l.refreshing.DoChan("", func() (any, error) {
		l.lookAtAll(context.WithoutCancel(ctx))
		return nil, nil
	})
	select {
	case <-asked:
	case <-ctx.Done():
	}
}

// lookAtAll exchanges all pools that are in use or were not long ago, those that only other replicas have used too.
func (l *Limiter) lookAtAll(ctx context.Context) {
	registered := map[*pool]bool{}
	if l.beat(ctx) == nil {
		keys := l.registered(ctx)
		l.mu.Lock()
		for _, key := range keys {
			registered[l.pool(key)] = true
		}
		l.mu.Unlock()
	}
	_ = l.sync(ctx, l.chosen(func(p *pool) bool { return !p.quiet || registered[p] })...)
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.pools, func(_ string, p *pool) bool { return p.rule == nil })
}

// found makes the rule of a pool that this process did not know.
func (p *pool) found(r limit.Request) {
	if p.rule == nil {
		p.rule, p.lost = limit.NewRule(r), true
		p.base.state, p.base.history = p.rule.Encode()
	}
	p.used, p.quiet = time.Now(), false
}
