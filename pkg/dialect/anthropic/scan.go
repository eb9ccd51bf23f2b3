package anthropic

import (
	"github.com/evalfleet/evalfleet/pkg/dialect"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonread"
	"github.com/evalfleet/evalfleet/pkg/json/jsonscan"
)

// scanned are the members of an answer, or of an event, that ScanUsage looks for.
var scanned = []string{"id", "stop_reason", "usage", "message", "delta"}

// ScanUsage implements dialect.Codec.
func (c Codec) ScanUsage(doc []byte, facts *dialect.Facts) {
	facts.Billing = facts.Billing.With(dialect.Billing{Model: fallbackOf(doc)})
	if !dialect.Says(doc, `"usage"`) {
		facts.Pieces++
		if !dialect.Says(doc, `"delta"`) {
			facts.Ended = facts.Ended || dialect.Says(doc, `"message_stop"`)
			facts.Failed = facts.Failed || dialect.Says(doc, `"error"`)
		}
		return
	}
	var found [5]jsonscan.Span
	jsonscan.Edges(doc, scanned, found[:])
	if !found[2].Found() && !found[3].Found() && jsonscan.Object(doc, scanned, found[:]) != nil {
		return
	}
	id, stop, taken, message, delta := found[0].Of(doc), found[1].Of(doc), found[2].Of(doc), found[3].Of(doc), found[4].Of(doc)
	switch {
	case len(message) > 0: // the start of a stream
		c.ScanUsage(message, facts)
		return
	case len(delta) > 0: // its end
		if word, ok := dialect.Word(delta, `"stop_reason"`); ok {
			facts.StopReason = stopReason(word)
		}
	}
	if text, ok := jsonscan.Text(id); ok {
		facts.ID = text
	}
	if word, ok := jsonscan.Text(stop); ok {
		facts.StopReason = stopReason(word)
	}
	var u *usage
	if jsonread.Unmarshal(taken, &u) == nil && u != nil {
		facts.Usage = wire(facts.Usage).with(u).message()
		facts.Billing = facts.Billing.With(u.billing())
	}
}

// wire is usage as on the wire, as far as it is set.
func wire(m *modelv1.ModelUsage) *usage {
	if m == nil {
		return nil
	}
	return &usage{
		Input: &m.InputTokens, Output: &m.OutputTokens, CacheWrite: m.InputTokensCacheWrite, CacheRead: m.InputTokensCacheRead,
		Details: &outputDetails{Thinking: m.ReasoningTokens},
	}
}
