package redis

import (
	"slices"
	"time"

	"github.com/evalfleet/evalfleet/pkg/limit"
)

// maxPending bounds the outcomes that are kept for Redis while it is away. The oldest are given up: what they say about
// the other side's capacity is no longer true.
const maxPending = 4096

// pool is a pool as this process knows it. It is guarded by Limiter.mu.
type pool struct {
	key     string
	limiter *Limiter
	gate    limit.Gate
	// lease is when the slots of the gate expire, by the clock of this process.
	lease time.Time

	// rule is base with the pending outcomes applied; nil until it is known.
	rule    *limit.Rule
	base    base
	pending []*event

	// since the last exchange or outcome
	peak   int // the most slots in use
	demand int // the most slots in use and callers waiting

	recent int       // a demand that falls slowly
	used   time.Time // when it last had a caller
	seen   time.Time // when a caller or a list last asked for it
	others others
	// counted is how many slots Redis counts as held by this process.
	counted int
	// asked is set if the pool is to be exchanged before the next tick, short if Redis granted less than was wanted, so
	// that asking again before the next tick is of no use.
	asked, short bool
	// quiet is set while this process has no lease and wants none, lost if Redis does not have the pool.
	quiet, lost bool
	// fault is why the answer of Redis for this pool cannot be used; nil if it can.
	fault error
}

// base is a rule as Redis has it.
type base struct {
	version, historyAt int64
	state              string
	history            *limit.History
}

// rule returns the rule. Its text was decoded before.
func (b base) rule() *limit.Rule {
	rule, err := limit.DecodeRule(b.state, b.history)
	if err != nil {
		panic(err)
	}
	return rule
}

// others are the sums of the other replicas, as of the last exchange.
type others struct{ inUse, peak, waiting int }

// event is a change of a rule that Redis does not have yet. It may be applied more than once, to different rules.
type event struct{ apply func(*limit.Rule) }

// acquired is called when a caller has got a slot.
func (p *pool) acquired(inUse int) {
	p.peak = max(p.peak, inUse)
	p.demand = max(p.demand, inUse+p.gate.Waiting())
}

// takePeak returns the most slots that were in use in all replicas since the last call; zero if no caller got one.
func (p *pool) takePeak() int {
	peak := p.peak
	if p.peak = 0; peak > 0 {
		peak += p.others.peak
	}
	return peak
}

// observe asks for an exchange if callers wait and Redis may have more slots, or if Redis counts slots as held that are
// free.
func (p *pool) observe() {
	p.demand = max(p.demand, p.gate.InUse()+p.gate.Waiting())
	p.used = time.Now()
	if p.gate.Lacks() && !p.short || p.held() < p.counted {
		p.ask()
	}
}

// ask asks for an exchange before the next tick. While Redis does not answer, or not usably, each tick tries.
func (p *pool) ask() {
	if p.limiter.away || p.fault != nil {
		return
	}
	p.asked = true
	select {
	case p.limiter.wake <- struct{}{}:
	default:
	}
}

// apply applies an event to the rule, and keeps it for Redis.
func (p *pool) apply(e *event) {
	if len(p.pending) == maxPending {
		p.pending = slices.Delete(p.pending, 0, maxPending/2)
	}
	p.pending = append(p.pending, e)
	e.apply(p.rule)
}

// accepted is called when a trial call was not refused. Other processes learn it at once.
func (p *pool) accepted() {
	now := p.limiter.now()
	p.apply(&event{func(r *limit.Rule) { r.Accepted(now) }})
	p.gate.Follow(p.rule, limit.Report{})
	p.ask()
}

// withdraw withdraws an event that Redis does not have, and reports whether there was such.
func (p *pool) withdraw(e *event) bool {
	at := slices.Index(p.pending, e)
	if at < 0 {
		return false
	}
	p.pending = slices.Delete(p.pending, at, at+1)
	p.rebuild()
	return true
}

// rebuild makes the rule from its base.
func (p *pool) rebuild() {
	p.rule = p.base.rule()
	for _, e := range p.pending {
		e.apply(p.rule)
	}
	p.gate.Follow(p.rule, limit.Report{})
}

// expire ends a lease that was not renewed in time: then no slot may be used before the next exchange, or, while Redis
// is away, this process's part of the limit.
func (p *pool) expire(now time.Time) {
	switch {
	case now.Before(p.lease) || p.rule == nil:
	case p.limiter.away || p.fault != nil:
		p.gate.SetSlots(max(1, p.rule.Limit()/p.limiter.replicas))
	default:
		p.gate.SetSlots(0)
	}
}

// held is how many slots callers hold or may get before the next exchange.
func (p *pool) held() int { return max(p.gate.Slots(), p.gate.InUse()) }

// idle reports whether no caller has a slot or waits for one.
func (p *pool) idle() bool { return p.gate.InUse() == 0 && p.gate.Waiting() == 0 }

// leaves reports whether the process gives the pool up: because of Close, or because it has had no caller for long.
func (p *pool) leaves(now time.Time) bool {
	after := quietAfter
	if len(p.limiter.pools) > maxPools {
		after = idleAfter
	}
	return p.limiter.closing || p.idle() && now.Sub(p.used) >= after
}

// due reports whether the pool is to be exchanged at this tick. An idle one only renews its lease, unless others wait
// for slots that it may hold.
func (p *pool) due(now time.Time) bool {
	switch ttl := p.limiter.cfg.TTL; {
	case p.quiet:
		return false
	case p.asked, p.lost, len(p.pending) > 0, p.demand > 0, p.recent > 0, !p.idle(), p.held() < p.counted, p.others.waiting > 0:
		return true
	default:
		return p.lease.Sub(now) <= ttl-ttl/3 || p.leaves(now)
	}
}

func (p *pool) state() limit.Pool {
	here := p.gate.Share()
	s := limit.Pool{Key: p.key, InUse: here.InUse + p.others.inUse, Waiting: here.Waiting + p.others.waiting, Here: here}
	p.rule.Describe(&s)
	return s
}
