// Package limit decides when a run has reached a bound. It is pure: its results depend only on the bounds and the
// usage.
//
// The rules differ between the bounds, and follow the reference:
//
//	messages  more than the bound when messages are added; as many as the bound before a model call
//	tokens    more than the bound after a model call, whose answer is then not kept; as many as the bound before one
//	cost      as tokens
//	turns     more than the bound after a model call, whose answer is then not kept
//	time      the bound by wall clock
//	working   the bound by a clock that stops while the run waits
package limit

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/enum"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// Kinds of bounds.
const (
	Message  = agentv1.LimitType_LIMIT_TYPE_MESSAGE
	Token    = agentv1.LimitType_LIMIT_TYPE_TOKEN
	Turn     = agentv1.LimitType_LIMIT_TYPE_TURN
	Time     = agentv1.LimitType_LIMIT_TYPE_TIME
	Working  = agentv1.LimitType_LIMIT_TYPE_WORKING
	Cost     = agentv1.LimitType_LIMIT_TYPE_COST
	Operator = agentv1.LimitType_LIMIT_TYPE_OPERATOR
)

// Use is the usage of a run.
type Use struct {
	// Messages is the length of the conversation.
	Messages int
	// Usage is the sum over all model calls.
	Usage *modelv1.ModelUsage
	// Turns counts the agent's model calls whose answers were kept.
	Turns int
}

// Set is a set of bounds, ready to be checked. It does not change and may be shared. The nil Set has no bounds.
type Set struct {
	bounds *agentv1.RunLimits
	meter  *Meter
}

// New reads bounds; nil means none. A bound that is negative or not finite, and an invalid formula, is INVALID_ARGUMENT
// with the name of the bound as its field.
func New(bounds *agentv1.RunLimits) (*Set, error) {
	meter, err := NewMeter(bounds.GetTokenFormula())
	if err != nil {
		return nil, rpcerr.InvalidField("token_formula", "%v", err)
	}
	for _, b := range []struct {
		name  string
		bound float64
	}{
		{"messages", float64(bounds.GetMessages())},
		{"tokens", float64(bounds.GetTokens())},
		{"turns", float64(bounds.GetTurns())},
		{"cost", bounds.GetCost()},
		{"time", bounds.GetTime().AsDuration().Seconds()},
		{"working_time", bounds.GetWorkingTime().AsDuration().Seconds()},
	} {
		if !(b.bound >= 0 && b.bound <= math.MaxFloat64) {
			return nil, rpcerr.InvalidField(b.name, "%v is no bound; give a number of 0 or more, or leave it out", b.bound)
		}
	}
	return &Set{bounds: bounds, meter: meter}, nil
}

// Bounds returns the bounds of the set. They must not be changed.
func (s *Set) Bounds() *agentv1.RunLimits {
	if s == nil {
		return nil
	}
	return s.bounds
}

// Metered returns the tokens that count toward the bound.
func (s *Set) Metered(usage *modelv1.ModelUsage) int64 {
	if s == nil {
		return usage.GetTotalTokens()
	}
	return s.meter.Count(usage)
}

// Growth returns the bound that a conversation of so many messages would break, or nil.
func (s *Set) Growth(messages int) *agentv1.LimitReached {
	if b := s.Bounds(); b != nil && b.Messages != nil && messages > int(b.GetMessages()) {
		return exceeded(Message, float64(b.GetMessages()), float64(messages), "%s messages")
	}
	return nil
}

// BeforeGenerate returns the bound that forbids a further model call, or nil.
func (s *Set) BeforeGenerate(u Use) *agentv1.LimitReached {
	b := s.Bounds()
	switch {
	case b == nil:
		return nil
	case b.Messages != nil && u.Messages >= int(b.GetMessages()):
		return reached(Message, float64(b.GetMessages()), float64(u.Messages), "%s messages")
	case b.Tokens != nil && s.Metered(u.Usage) >= b.GetTokens():
		return reached(Token, float64(b.GetTokens()), float64(s.Metered(u.Usage)), "%s tokens")
	case b.Cost != nil && u.Usage.GetTotalCost() >= b.GetCost():
		return reached(Cost, b.GetCost(), u.Usage.GetTotalCost(), "$%s")
	}
	return nil
}

// Spent returns the bound of tokens or cost that a model call broke, or nil. Such a call is no turn.
func (s *Set) Spent(u Use) *agentv1.LimitReached {
	b := s.Bounds()
	switch {
	case b == nil:
		return nil
	case b.Tokens != nil && s.Metered(u.Usage) > b.GetTokens():
		return exceeded(Token, float64(b.GetTokens()), float64(s.Metered(u.Usage)), "%s tokens")
	case b.Cost != nil && u.Usage.GetTotalCost() > b.GetCost():
		return exceeded(Cost, b.GetCost(), u.Usage.GetTotalCost(), "$%s")
	}
	return nil
}

// AfterGenerate returns the bound that a model call broke, or nil. The call's own turn is included in u, unless Spent
// reports that the call is not a turn.
func (s *Set) AfterGenerate(u Use) *agentv1.LimitReached {
	if hit := s.Spent(u); hit != nil {
		return hit
	}
	if b := s.Bounds(); b != nil && b.Turns != nil && u.Turns > int(b.GetTurns()) {
		return exceeded(Turn, float64(b.GetTurns()), float64(u.Turns), "%s turns")
	}
	return nil
}

// TimedOut returns the bound of wall time that elapsed breaks, or nil. Left is the remaining time; negative if there is
// no bound.
func (s *Set) TimedOut(elapsed time.Duration) (hit *agentv1.LimitReached, left time.Duration) {
	return clock(Time, s.Bounds() != nil && s.Bounds().Time != nil, s.Bounds().GetTime().AsDuration(), elapsed)
}

// Timed reports whether wall time or working time is bounded.
func (s *Set) Timed() bool {
	return s.Bounds() != nil && (s.Bounds().Time != nil || s.Bounds().WorkingTime != nil)
}

// Overworked is TimedOut for working time.
func (s *Set) Overworked(working time.Duration) (hit *agentv1.LimitReached, left time.Duration) {
	return clock(Working, s.Bounds() != nil && s.Bounds().WorkingTime != nil, s.Bounds().GetWorkingTime().AsDuration(), working)
}

func clock(kind agentv1.LimitType, set bool, bound, used time.Duration) (*agentv1.LimitReached, time.Duration) {
	if !set {
		return nil, -1
	}
	if used < bound {
		return nil, bound - used
	}
	return exceeded(kind, bound.Seconds(), used.Seconds(), "%s seconds"), 0
}

// Ended is the LimitReached of a run that an operator or an approver ended.
func Ended(message string) *agentv1.LimitReached {
	return &agentv1.LimitReached{Type: Operator, Limit: 1, Value: 1, Message: message}
}

func reached(kind agentv1.LimitType, bound, value float64, unit string) *agentv1.LimitReached {
	return hit(kind, bound, value, "the %s limit of "+unit+" is reached; no further model call is made")
}

func exceeded(kind agentv1.LimitType, bound, value float64, unit string) *agentv1.LimitReached {
	return hit(kind, bound, value, "the %s limit of "+unit+" is exceeded")
}

func hit(kind agentv1.LimitType, bound, value float64, message string) *agentv1.LimitReached {
	return &agentv1.LimitReached{Type: kind, Limit: bound, Value: value, Message: fmt.Sprintf(message, enum.Word(kind), strconv.FormatFloat(bound, 'f', -1, 64))}
}

// Settable are the fields of a set of bounds.
func Settable() []string {
	var names []string
	fields := (&agentv1.RunLimits{}).ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		names = append(names, string(fields.Get(i).Name()))
	}
	return names
}

// Retune returns base with the named fields of now. It removes those that now lacks.
func Retune(base, now *agentv1.RunLimits, names []string) *agentv1.RunLimits {
	retuned := &agentv1.RunLimits{}
	if base != nil {
		retuned = proto.CloneOf(base)
	}
	from, to := now.ProtoReflect(), retuned.ProtoReflect()
	for _, name := range names {
		f := to.Descriptor().Fields().ByName(protoreflect.Name(name))
		switch {
		case f == nil: // Of a later version; its command is not accepted.
		case from.Has(f):
			to.Set(f, from.Get(f))
		default:
			to.Clear(f)
		}
	}
	return retuned
}

// inputTokens and outputTokens are the variables of a formula.
func inputTokens(u *modelv1.ModelUsage) float64  { return float64(chat.InputTokens(u)) }
func outputTokens(u *modelv1.ModelUsage) float64 { return float64(u.GetOutputTokens()) }
