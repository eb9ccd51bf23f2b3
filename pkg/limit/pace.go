package limit

import "time"

// Allowance is what a provider says with an answer of a limit by time, such as its requests in a minute.
type Allowance struct {
	// Limit is how much there is at most, and Remaining how much of it was left, from zero to Limit. An allowance with
	// other numbers says nothing, and neither does the zero value.
	Limit, Remaining float64
	// Full is when all of it is back if no more is used.
	Full time.Time
}

// Allowances are the limits by time that a provider speaks of: requests, tokens, and the tokens of questions and of
// answers where these are apart.
type Allowances struct {
	Requests, Tokens, Input, Output Allowance
	// Refused means that the answer is a refusal, so that the call took nothing.
	Refused bool
}

const (
	// memory is how long counts what a provider said. Most limits are by the minute. A longer one refuses some calls
	// then, and says so again.
	memory = time.Minute
	// telling is the part of a limit that must be in use before the time until it is full shows how fast it fills: some
	// providers round that time to seconds.
	telling = 0.1
	// apart is how many calls must lie between two answers before their difference shows what a call takes, and learns
	// the weight of such a difference.
	apart  = 4
	learns = 0.25
	// reserve is the part of a limit that is left unused, and reserveCalls the number of calls for which it suffices at
	// least: calls differ, and arrive in another order than they began. A small limit keeps half for use.
	reserve      = 0.01
	reserveCalls = 2
	// Two ends of windows are the same if they differ by roundTo at most, and by a roundPart of what was left. A bucket
	// is full later by more than that once windowUse of the limit more is used.
	roundTo   = time.Second
	roundPart = 0.1
	windowUse = 0.2
)

// most is the largest limit that can be meant.
const most = 1e15

// firstTrial and shortestTrial are intervals of [paces.trial]; the longest is memory.
const (
	firstTrial    = 10 * time.Second
	shortestTrial = time.Millisecond
)

// paces are those of a pool, one for each of its [Allowances].
type paces struct {
	each [4]pace
	// last is when the last call began, and trial how long after it the next one begins though too little remains: what
	// is said may be of another limit, or of several, such as those of the accounts behind a proxy. Each call that is
	// served though too little remained halves it, so that what is never true soon has no effect; one that is refused
	// resets it.
	last  time.Time
	trial time.Duration
}

func newPaces(now time.Time) *paces { return &paces{last: now, trial: firstTrial} }

// wait returns how long the next call must wait by what was said.
func (p *paces) wait(now time.Time) (wait time.Duration) {
	for i := range p.each {
		wait = max(wait, p.each[i].wait(now))
	}
	return wait
}

// next returns when the next call begins, one that tries what was said included. The end of a window is waited for,
// unless such calls were served.
func (p *paces) next(now time.Time) time.Duration {
	trial := p.trial
	for i := range p.each {
		if p.each[i].window && p.trial >= firstTrial {
			trial = memory
		}
	}
	return max(0, min(p.wait(now), p.last.Add(trial).Sub(now)))
}

// took notes that a call begins, and reports whether that is though too little remains.
func (p *paces) took(now time.Time) (tries bool) {
	p.last = now
	for i := range p.each {
		tries = tries || p.each[i].lacks(now) > 0
		p.each[i].took(now)
	}
	return tries
}

// told notes what the answer to the call in a slot said. Calls is how many have begun up to now.
func (p *paces) told(all Allowances, s *Slot, now time.Time, calls uint64) {
	for i, a := range [...]Allowance{all.Requests, all.Tokens, all.Input, all.Output} {
		p.each[i].told(answer{Allowance: a, refused: all.Refused, call: s.call, began: s.began}, now, calls)
	}
	switch {
	case s.tries && all.Refused:
		p.trial = memory
	case s.tries:
		p.trial = max(p.trial/2, shortestTrial)
	}
	s.tries = false
}

// pace estimates how much remains of a limit by time, between the answers that say it, so that calls wait before the
// provider refuses them. There are two kinds: a bucket fills steadily, and a window is full again at its end. In a window
// more is used and the time of its end stays; a bucket is full later then.
//
// What a call takes is learned from the answers, and so includes what others use meanwhile, such as replicas: each
// replica gets the part of what remains that it has of all calls, and none needs to know of the others.
//
// The zero value knows nothing. A pace is not safe for concurrent use.
type pace struct {
	limit float64
	gain  float64 // in a second; zero in a window
	takes float64 // by a call, at least 1; zero before anything was said
	left  float64 // at the time at
	at    time.Time
	until time.Time // when what is known does not count any more
	since answer    // from which takes is measured
	// window says which kind it is. end is the first answer with the same end, with the most that remained, and round
	// how much other times may differ from it.
	window bool
	end    answer
	round  time.Duration
}

// answer is what an answer says of one limit.
type answer struct {
	Allowance
	refused bool
	call    uint64 // its number
	began   time.Time
}

// wait returns how long the next call must wait.
func (p *pace) wait(now time.Time) time.Duration {
	lacks := p.lacks(now)
	if !p.known(now) || lacks <= 0 {
		return 0
	}
	back := p.until.Sub(now)
	if p.window && now.Before(p.end.Full) {
		back = min(back, p.end.Full.Sub(now))
	}
	if seconds := lacks / p.gain; seconds < back.Seconds() {
		back = time.Duration(seconds * float64(time.Second))
	}
	return max(back, time.Millisecond)
}

// lacks is how much the next call lacks by what was said, even if that does not count any more.
func (p *pace) lacks(now time.Time) float64 {
	if p.until.IsZero() {
		return 0
	}
	return min(p.takes+max(reserveCalls*p.takes, reserve*p.limit), p.limit/2) - p.leftAt(now)
}

func (p *pace) known(now time.Time) bool { return now.Before(p.until) }

// leftAt is how much remains by now.
func (p *pace) leftAt(now time.Time) float64 {
	if p.window && p.at.Before(p.end.Full) && !now.Before(p.end.Full) {
		return p.limit
	}
	return min(p.limit, p.left+p.gain*max(0, now.Sub(p.at).Seconds()))
}

// took notes that a call begins.
func (p *pace) took(now time.Time) {
	if p.known(now) {
		p.left, p.at = p.leftAt(now)-p.takes, now
	}
}

// told notes what an answer says. Calls is how many have begun up to now.
func (p *pace) told(a answer, now time.Time, calls uint64) {
	used, fills := a.Limit-a.Remaining, a.Full.Sub(a.began)
	if !(a.Limit > 0 && a.Limit <= most && a.Remaining >= 0 && used >= 0) {
		return
	}
	if p.takes == 0 && a.Remaining == 0 && !a.refused { // It serves, and has never said that anything remains.
		return
	}
	if p.takes == 0 || p.limit != a.Limit {
		*p = pace{limit: a.Limit, takes: 1}
	}
	p.judge(a, fills)
	switch {
	case p.window:
		p.gain = 0
	case used >= telling*a.Limit && fills > 0:
		p.gain = used / fills.Seconds()
	case p.gain == 0:
		return
	}
	p.learn(a)
	// The provider counted at some time between the beginning of the call and now.
	late := a.Remaining
	early := late + p.gain*now.Sub(a.began).Seconds() - p.takes*float64(calls-a.call)
	left := min(early, late)
	if p.known(now) && !p.window {
		left = max(left, min(p.leftAt(now), max(early, late)))
	}
	p.left, p.at, p.until = left, now, now.Add(memory)
}

// judge finds the kind of the limit. Fills is how long it was until it is full.
func (p *pace) judge(a answer, fills time.Duration) {
	if a.Full.Sub(p.end.Full).Abs() > p.round {
		p.window = p.window && a.began.Add(p.round).After(p.end.Full) // Then the next one has begun.
		if p.window {
			p.since = answer{}
		}
		p.end, p.round = a, min(roundTo, time.Duration(roundPart*float64(fills)))
	}
	p.end.Remaining = max(p.end.Remaining, a.Remaining)
	p.window = p.window || p.end.Remaining-a.Remaining >= windowUse*p.limit
}

// learn finds what a call takes, if the answer is to a later call than the last one, and the limit was not full between
// them. Refused calls take nothing: then it is measured from another answer on.
func (p *pace) learn(a answer) {
	switch {
	case a.refused:
		p.since = answer{}
		return
	case p.since.call == 0 || a.call < p.since.call:
		p.since = a
		return
	case a.call-p.since.call < apart:
		return
	}
	used := p.since.Remaining - a.Remaining + p.gain*a.began.Sub(p.since.began).Seconds()
	if used >= 0 && (p.window || a.began.Before(p.since.Full)) {
		used = min(used/float64(a.call-p.since.call), p.limit/2)
		p.takes = max(1, p.takes+learns*(used-p.takes))
	}
	p.since = a
}
