package limit

import "time"

// Allowance is what a provider reports with an answer about one of its rate limits, such as requests in a minute.
type Allowance struct {
	// Limit is the most that there can be, in requests or tokens, and Remaining what was left, from zero to Limit. An
	// allowance with other numbers is ignored, and so is the zero value.
	Limit, Remaining float64
	// Full is when Remaining is Limit again if nothing more is used.
	Full time.Time
}

// Allowances are the rate limits that a provider reports: requests, tokens, and tokens of input and of output where the
// provider counts these separately. A limit that is not reported is the zero value.
type Allowances struct {
	Requests, Tokens, Input, Output Allowance
	// Refused means that the answer is a refusal, so that the call took nothing.
	Refused bool
}

const (
	// validFor is how long a report counts. Most limits are by the minute. A longer one refuses some calls then, and is
	// reported again.
	validFor = time.Minute
	// minUsed is the part of a limit that must be in use before the time until it is full shows how fast it fills: some
	// providers round that time to seconds.
	minUsed = 0.1
	// minCalls is how many calls must lie between two answers before their difference shows what a call takes, and
	// weight is that of such a difference in the moving average.
	minCalls = 4
	weight   = 0.25
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

// firstTrial and shortestTrial are intervals of [paces.trial]; the longest is validFor.
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
			trial = validFor
		}
	}
	return max(0, min(p.wait(now), p.last.Add(trial).Sub(now)))
}

// acquired notes that a call begins, and reports whether that is though too little remains.
func (p *paces) acquired(now time.Time) (tries bool) {
	p.last = now
	for i := range p.each {
		tries = tries || p.each[i].lacks(now) > 0
		p.each[i].acquired(now)
	}
	return tries
}

// observe records what the answer to the call in a slot reports. Calls is how many have begun up to now.
func (p *paces) observe(all Allowances, s *Slot, now time.Time, calls uint64) {
	for i, a := range [...]Allowance{all.Requests, all.Tokens, all.Input, all.Output} {
		p.each[i].observe(answer{Allowance: a, refused: all.Refused, call: s.call, began: s.began}, now, calls)
	}
	switch {
	case s.tries && all.Refused:
		p.trial = validFor
	case s.tries:
		p.trial = max(p.trial/2, shortestTrial)
	}
	s.tries = false
}

// pace estimates how much of a rate limit remains between the answers that report it, so that calls wait before the
// provider refuses them. There are two kinds of limits: a token bucket fills steadily, and a fixed window is full again
// at its end. When more is used, the end of a window stays, and a bucket is full later.
//
// What a call takes is learned from the answers, and so includes what others use meanwhile, such as replicas: each
// replica gets a share of what remains in proportion to its calls, and none needs to know of the others.
//
// The zero value knows nothing. A pace is not safe for concurrent use.
type pace struct {
	limit float64
	gain  float64 // in a second; zero in a window
	takes float64 // by a call, at least 1; zero before anything was said
	left  float64 // at the time at
	at    time.Time
	until time.Time // until when the last report counts
	since answer    // from which takes is measured
	// window says which kind it is. end is the first answer with the same end, with the most that remained, and round
	// how much other times may differ from it.
	window bool
	end    answer
	round  time.Duration
}

// answer is what an answer reports about one limit.
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

// acquired notes that a call begins.
func (p *pace) acquired(now time.Time) {
	if p.known(now) {
		p.left, p.at = p.leftAt(now)-p.takes, now
	}
}

// observe records what an answer reports. Calls is how many have begun up to now.
func (p *pace) observe(a answer, now time.Time, calls uint64) {
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
	case used >= minUsed*a.Limit && fills > 0:
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
	p.left, p.at, p.until = left, now, now.Add(validFor)
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
	case a.call-p.since.call < minCalls:
		return
	}
	used := p.since.Remaining - a.Remaining + p.gain*a.began.Sub(p.since.began).Seconds()
	if used >= 0 && (p.window || a.began.Before(p.since.Full)) {
		used = min(used/float64(a.call-p.since.call), p.limit/2)
		p.takes = max(1, p.takes+weight*(used-p.takes))
	}
	p.since = a
}
