package limit

import (
	"encoding/json"
	"errors"
	"slices"
	"time"
)

// Rule is the limit of a pool: a fixed one, or one that a Controller adapts. It is plain data, so that several
// processes can share one through a store.
//
// A Rule is not safe for concurrent use.
type Rule struct {
	fixed      int
	controller *Controller // nil if the limit is fixed
}

// NewRule returns the rule of a pool that r creates.
func NewRule(r Request) *Rule {
	if r.Adaptive != nil {
		return &Rule{controller: NewController(*r.Adaptive)}
	}
	return &Rule{fixed: r.Fixed}
}

// Limit returns the limit now.
func (r *Rule) Limit() int {
	if r.controller != nil {
		return r.controller.Limit()
	}
	return r.fixed
}

// Adaptive reports whether the limit adapts.
func (r *Rule) Adaptive() bool { return r.controller != nil }

// Acquired records the number of slots in use when one was acquired.
func (r *Rule) Acquired(inUse int, now time.Time) {
	if r.controller != nil {
		r.controller.Acquired(inUse, now)
	}
}

// Report records the outcome of a request.
func (r *Rule) Report(outcome Outcome, now time.Time, subject string) {
	switch {
	case r.controller == nil:
	case outcome == Clean:
		r.controller.Clean(now, subject)
	case outcome == RateLimited:
		r.controller.RateLimited(now, subject)
	}
}

// SetMax sets a fixed limit, or the highest limit of an adaptive one. It fails with ErrTooLow.
func (r *Rule) SetMax(n int, now time.Time) error {
	switch {
	case n < 1:
		return ErrTooLow
	case r.controller != nil:
		return r.controller.SetMax(n, now)
	}
	r.fixed = n
	return nil
}

// Describe sets the fields of p that the rule determines.
func (r *Rule) Describe(p *Pool) {
	p.Limit = r.Limit()
	if c := r.controller; c != nil {
		p.Adaptive, p.Min, p.Max, p.History = true, c.min, c.max, slices.Clone(c.history)
	}
}

// ruleData is a Rule without its history, as stored.
type ruleData struct {
	Fixed    int           `json:"fixed,omitempty"`
	Adaptive *adaptiveData `json:"adaptive,omitempty"`
}

type adaptiveData struct {
	Bounds    Bounds    `json:"bounds"`
	Min       int       `json:"min"`
	Max       int       `json:"max"`
	Limit     int       `json:"limit"`
	Successes int       `json:"successes"`
	Peak      int       `json:"peak"`
	Met       bool      `json:"met"`
	Cooldown  time.Time `json:"cooldown"`
}

// Encode returns the rule as two texts, since its history is long and seldom changes.
func (r *Rule) Encode() (state, history string) {
	data, changes := ruleData{Fixed: r.fixed}, []Change{}
	if c := r.controller; c != nil {
		data.Adaptive = &adaptiveData{c.bounds, c.min, c.max, c.limit, c.successes, c.peak, c.met, c.cooldown}
		changes = append(changes, c.history...)
	}
	return text(data), text(changes)
}

func text(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // unreachable: numbers, texts and times
	}
	return string(b)
}

// DecodeRule returns the rule that Encode encoded.
func DecodeRule(state, history string) (*Rule, error) {
	var data ruleData
	var changes []Change
	if err := errors.Join(json.Unmarshal([]byte(state), &data), json.Unmarshal([]byte(history), &changes)); err != nil {
		return nil, err
	}
	r := &Rule{fixed: data.Fixed}
	if a := data.Adaptive; a != nil {
		r.controller = &Controller{
			bounds: a.Bounds, min: a.Min, max: a.Max, limit: a.Limit, history: changes,
			successes: a.Successes, peak: a.Peak, met: a.Met, cooldown: a.Cooldown,
		}
	}
	if r.Limit() < 1 {
		return nil, ErrTooLow
	}
	return r, nil
}
