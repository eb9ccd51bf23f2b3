package limit

import (
	"encoding/json"
	"errors"
	"time"
)

// Rule is the limit of a pool: a fixed one, or one that adapts. It is plain data, so that several processes can share
// one through a store.
//
// A Rule is not safe for concurrent use.
type Rule struct {
	fixed    int
	adaptive adaptation // nil if the limit is fixed
}

// adaptation is a rule by which a limit adapts.
type adaptation interface {
	Limit() int
	Acquired(inUse int, now time.Time)
	Clean(now time.Time, subject string)
	Retried(now time.Time, subject string)
	RateLimited(now time.Time, subject string)
	SetMax(n int, now time.Time) error
	at() *level
	encode() ruleData
}

// NewRule returns the rule of a pool that r creates.
func NewRule(r Request) *Rule {
	switch {
	case r.Adaptive == nil:
		return &Rule{fixed: r.Fixed}
	case r.Adaptive.Probing:
		return &Rule{adaptive: NewProber(*r.Adaptive)}
	default:
		return &Rule{adaptive: NewController(*r.Adaptive)}
	}
}

// Limit returns the limit now.
func (r *Rule) Limit() int {
	if r.adaptive != nil {
		return r.adaptive.Limit()
	}
	return r.fixed
}

// Adaptive reports whether the limit adapts.
func (r *Rule) Adaptive() bool { return r.adaptive != nil }

// Acquired records the number of slots in use when one was acquired.
func (r *Rule) Acquired(inUse int, now time.Time) {
	if r.adaptive != nil {
		r.adaptive.Acquired(inUse, now)
	}
}

// Report records how a request went.
func (r *Rule) Report(said Report, now time.Time) {
	switch {
	case r.adaptive == nil:
	case said.Outcome == Clean:
		r.adaptive.Clean(now, said.Subject)
	case said.Outcome == Retried:
		r.adaptive.Retried(now, said.Subject)
	case said.Outcome == RateLimited:
		r.adaptive.RateLimited(now, said.Subject)
	}
}

// Tripped reports whether the provider refuses all calls now. The limit is then one: a trial call finds out when that
// has changed, as behind a circuit breaker.
func (r *Rule) Tripped() bool {
	p, probing := r.adaptive.(*Prober)
	return probing && p.tripped()
}

// Accepted records that a trial call was not refused: the provider serves again.
func (r *Rule) Accepted(now time.Time) {
	if p, probing := r.adaptive.(*Prober); probing {
		p.accepted(now, "")
	}
}

// SetMax sets a fixed limit, or the highest limit of an adaptive one. It fails with ErrTooLow.
func (r *Rule) SetMax(n int, now time.Time) error {
	switch {
	case n < 1:
		return ErrTooLow
	case r.adaptive != nil:
		return r.adaptive.SetMax(n, now)
	}
	r.fixed = n
	return nil
}

// Describe sets the fields of p that the rule determines.
func (r *Rule) Describe(p *Pool) {
	p.Limit = r.Limit()
	if r.adaptive != nil {
		l := r.adaptive.at()
		p.Adaptive, p.Min, p.Max, p.History = true, l.min, l.max, l.history.list()
	}
}

// ruleData is a Rule without its history, as stored. Of its fields one is set.
type ruleData struct {
	Fixed    int             `json:"fixed,omitempty"`
	Recorded *controllerData `json:"recorded,omitempty"`
	Probing  *proberData     `json:"probing,omitempty"`
}

type levelData struct {
	Bounds Bounds `json:"bounds"`
	Min    int    `json:"min"`
	Max    int    `json:"max"`
	Limit  int    `json:"limit"`
}

type controllerData struct {
	levelData
	Successes int       `json:"successes"`
	Peak      int       `json:"peak"`
	Met       bool      `json:"met"`
	Cooldown  time.Time `json:"cooldown"`
}

type proberData struct {
	levelData
	Ceiling int     `json:"ceiling"`
	Missing int     `json:"missing"`
	Clean   int     `json:"clean"`
	Rounds  float64 `json:"rounds"`
	Round   int     `json:"round"`
	Peak    int     `json:"peak"`
	Refused int     `json:"refused"`
	Began   int     `json:"began"`
	Quiet   int     `json:"quiet"`
	Served  int     `json:"served"`
	Row     int     `json:"row,omitempty"`
	Aside   int     `json:"aside,omitempty"`
}

func (l *level) at() *level { return l }

func (l *level) data() levelData { return levelData{l.bounds, l.min, l.max, l.limit} }

func (d levelData) level(history *History) level {
	return level{bounds: d.Bounds, min: d.Min, max: d.Max, limit: d.Limit, history: history}
}

func (c *Controller) encode() ruleData {
	return ruleData{Recorded: &controllerData{c.data(), c.successes, c.peak, c.met, c.cooldown}}
}

func (p *Prober) encode() ruleData {
	return ruleData{Probing: &proberData{p.data(), p.ceiling, p.missing, p.clean, p.rounds, p.round, p.peak, p.refused, p.began, p.quiet, p.served, p.row, p.aside}}
}

// Encode returns the rule as text, without its history, which is long and seldom changes.
func (r *Rule) Encode() (state string, history *History) {
	if r.adaptive == nil {
		return text(ruleData{Fixed: r.fixed}), nil
	}
	return text(r.adaptive.encode()), r.adaptive.at().history
}

func text(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // unreachable: numbers, texts and times
	}
	return string(b)
}

// errNoRule is the error for a rule of another version.
var errNoRule = errors.New("its kind is unknown")

// DecodeRule returns the rule that Encode encoded.
func DecodeRule(state string, history *History) (*Rule, error) {
	var data ruleData
	if err := json.Unmarshal([]byte(state), &data); err != nil {
		return nil, err
	}
	r := &Rule{fixed: data.Fixed}
	if c := data.Recorded; c != nil {
		r.adaptive = &Controller{level: c.level(history), successes: c.Successes, peak: c.Peak, met: c.Met, cooldown: c.Cooldown}
	}
	if p := data.Probing; p != nil {
		r.adaptive = &Prober{
			level: p.level(history), ceiling: p.Ceiling, missing: p.Missing,
			clean: p.Clean, rounds: p.Rounds, round: p.Round, peak: p.Peak, refused: p.Refused, began: p.Began, quiet: p.Quiet, served: p.Served,
			row: p.Row, aside: p.Aside,
		}
	}
	switch {
	case r.adaptive == nil && r.fixed == 0:
		return nil, errNoRule
	case r.Limit() < 1:
		return nil, ErrTooLow
	}
	return r, nil
}
