package limit

import (
	"math"
	"time"
)

const (
	// patience is how many successes a limit must last before one more slot is tried. A try costs a refusal if the
	// capacity has not grown: one call in two hundred, which is half of the goal of at most 1 %.
	patience = 200
	// patientRounds is the same in rounds, for limits above a third of patience: what a try brings must be known
	// before the next one.
	patientRounds = 3
	// doublings is how often in a round the step beyond the ceiling doubles while nothing is refused. Refusals come
	// sooner than answers: one that takes a tenth of a call comes before the step has grown by a seventh.
	doublings = 2
	// gentle is the part of the limit that a refusal takes at most.
	gentle = 0.1
	// deepest is the part of the limit to which a shortage lowers the ceiling at most, so that a provider which
	// refuses everything for a while is soon used again.
	deepest = 0.5
	// tripAfter is how many refusals without a success between them trip the rule. A provider that counts
	// calls at once serves others meanwhile; outcomes of replicas come in batches, so that fewer would be too few.
	tripAfter = 12
)

// Prober is a rule that stays close to a capacity which it knows from the last refusal; it has no slots. It is BIC, a
// rule of TCP (Xu, Harfoush and Rhee, INFOCOM 2004; CUBIC, RFC 9438, is its successor), for calls in place of packets:
//
//	        refused                      ╱ refused    beyond the ceiling: 1, 2, 4, 8 slots, two doublings a round
//	           ╱│      ╭────────────────╯ ╰────       the ceiling, for as long as patience says
//	         ╱  │   ╭──╯                              up to it: half of what is missing in each round
//	slow   ╱    ╰───╯                                 the nth refusal of a shortage takes n slots, at most a
//	start╱                                            tenth of the limit
//
// A round is as many successes as the limit is high, about as long as a call. Until the first refusal the limit doubles
// in each. A try of one slot that is refused costs one refusal and one slot for a moment; a capacity that has fallen
// costs about the root of twice the fall. Successes count only while the limit is nearly used up, and those that needed
// a retry count too. After a number of refusals without a success the rule is tripped: the limit is one, until a trial
// call is served.
//
// A Prober is not safe for concurrent use.
type Prober struct {
	level
	// ceiling is one below the limit that was refused last; zero before the first refusal.
	ceiling int
	// missing is how far below the ceiling the limit was after the last refusal.
	missing int
	// clean are the successes since the last refusal, rounds their number in rounds, or those since patience ended.
	clean  int
	rounds float64
	// round are the successes in this round, and peak the most slots in use in it; a refusal begins a new one.
	round, peak int
	// refused are the refusals of this shortage, began is the limit in use when it began. It ends after a round of
	// successes without a refusal (quiet), or after two rounds of all (served): then the provider is no longer away,
	// but takes even less than the shortage's lowest ceiling.
	refused, began, quiet, served int
	// row is the number of refusals since the last success. While the rule is tripped, aside is the limit that the next
	// success restores; otherwise it is zero.
	row, aside int
}

// NewProber returns the rule at its first limit.
func NewProber(b Bounds) *Prober { return &Prober{level: newLevel(b)} }

// Acquired records the number of slots in use, the newly acquired one included.
func (p *Prober) Acquired(inUse int, _ time.Time) { p.peak = max(p.peak, inUse) }

// Clean notes a success that needed no retry.
func (p *Prober) Clean(now time.Time, subject string) {
	p.quiet++
	p.served++
	p.accepted(now, subject)
	if float64(p.peak) < saturation*float64(p.limit) {
		return
	}
	if p.round++; p.round >= p.limit {
		p.round, p.peak = 0, 0
	}
	if p.ceiling == 0 {
		p.grow(p.limit+1, SlowStart, now, subject)
		return
	}
	p.clean++
	p.rounds += 1 / float64(p.limit)
	wait := max(patience, patientRounds*p.ceiling)
	if p.clean < wait {
		left := math.Round(float64(p.missing) * math.Exp2(-p.rounds))
		p.grow(p.ceiling-int(left), SteadyStateUp, now, subject)
		return
	}
	if p.clean == wait {
		p.rounds = 0
	}
	beyond := min(math.Exp2(doublings*p.rounds), float64(p.max))
	p.grow(p.ceiling+int(beyond), SteadyStateUp, now, subject)
	if p.limit == p.max { // What is beyond was not tried, and may be allowed later.
		p.ceiling, p.missing, p.clean = p.max, 0, 0
	}
}

// Retried notes a success after failed attempts. It shows as much as any other.
func (p *Prober) Retried(now time.Time, subject string) { p.Clean(now, subject) }

// RateLimited records an answer that asks to slow down.
func (p *Prober) RateLimited(now time.Time, subject string) {
	if p.row++; p.tripped() {
		return
	}
	used := p.limit
	if p.peak > 0 {
		used = min(used, p.peak) // What was not in use was not refused.
	}
	if p.refused == 0 || p.quiet > p.ceiling || p.served > 2*p.began {
		p.refused, p.began, p.served = 0, used, 0
	}
	// Where no call has got a slot since the last refusal, this one began before that, and says nothing of the limit
	// now.
	if p.peak > 0 || p.refused == 0 {
		p.ceiling = max(used-1, int(deepest*float64(p.began)), p.min)
	}
	p.refused++
	p.quiet, p.clean, p.rounds, p.round, p.peak = 0, 0, 0, 0, 0
	cut := min(p.refused, max(1, int(gentle*float64(used))))
	p.step(max(used-cut, p.min, 1), RateLimit, now, subject)
	p.missing = max(0, p.ceiling-p.limit)
	if p.row >= tripAfter {
		p.aside = p.limit
		p.step(1, RateLimit, now, subject)
	}
}

// tripped reports whether all calls are refused, so that the limit is one trial call.
func (p *Prober) tripped() bool { return p.aside > 0 }

// accepted notes that the provider takes calls, and resets a tripped rule. A provider that was away takes as much as
// before: its ceiling is restored at once, and the limit soon.
func (p *Prober) accepted(now time.Time, subject string) {
	p.row = 0
	if p.tripped() {
		p.grow(p.aside, SteadyStateUp, now, subject)
		p.aside = 0
		p.ceiling = max(p.ceiling, p.began-1)
		p.missing = max(0, p.ceiling-p.limit)
	}
}

// grow raises the limit to n, or to the highest.
func (p *Prober) grow(n int, reason Reason, now time.Time, subject string) {
	if n = min(n, p.max); n > p.limit {
		p.step(n, reason, now, subject)
	}
}

// step sets the limit. Steps that soon follow others for the same reason are one change of the history.
func (p *Prober) step(n int, reason Reason, now time.Time, subject string) {
	if n != p.limit {
		p.history = p.history.merged(Change{Time: now, Old: p.limit, New: n, Reason: reason, Subject: subject})
		p.limit = n
	}
}
