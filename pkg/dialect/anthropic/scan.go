package anthropic

import (
	"cmp"
	"slices"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonread"
	"github.com/evalfleet/evalfleet/pkg/json/jsonscan"
)

// scanned are the members of an answer, or of an event, that ScanUsage looks for.
var scanned = []string{"id", "stop_reason", "usage", "message", "delta"}

// ending are the members of an event that ends a stream.
var ending = []string{"type", "error"}

var stopReason = dialect.NewWordPath("stop_reason")

// ScanUsage implements dialect.Codec.
func (c Codec) ScanUsage(doc []byte, facts *dialect.Facts) {
	facts.Billing = facts.Billing.With(dialect.Billing{Model: fallbackOf(doc)})
	if !dialect.Says(doc, `"usage"`) {
		facts.Pieces++
		if !dialect.Says(doc, `"delta"`) {
			var found [2]jsonscan.Span
			jsonscan.Edges(doc, ending, found[:])
			kind, _ := jsonscan.Text(found[0].Of(doc))
			facts.Ended, facts.Failed = facts.Ended || kind == "message_stop", facts.Failed || found[1].Found()
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
		if word, ok := stopReason.Of(delta); ok {
			facts.StopReason = stopReasons.Of(word)
		}
	}
	if text, ok := jsonscan.Text(id); ok {
		facts.ID = text
	}
	if word, ok := jsonscan.Text(stop); ok {
		facts.StopReason = stopReasons.Of(word)
	}
	var u *usage
	if jsonread.Unmarshal(taken, &u) == nil && u != nil {
		whole := wire(facts.Usage).with(u)
		facts.Usage = whole.message()
		facts.Billing = facts.Billing.With(u.billing())
		facts.Billing.Passes = nil
		if passes := whole.messages(); len(passes) > 1 {
			facts.Billing.Passes = passes
		}
	}
}

// wire is usage as on the wire, as far as it is set.
func wire(m *modelv1.ModelUsage) *usage {
	if m == nil {
		return nil
	}
	return &usage{
		Input: (*dialect.Tokens)(&m.InputTokens), Output: (*dialect.Tokens)(&m.OutputTokens),
		CacheWrite: (*dialect.Tokens)(m.InputTokensCacheWrite), CacheRead: (*dialect.Tokens)(m.InputTokensCacheRead),
		Details: outputDetails{Thinking: (*dialect.Tokens)(m.ReasoningTokens)},
	}
}

// usualModes are the speeds, regions and tiers whose prices are the model's, or a share of them in a batch.
var usualModes = []string{"", "standard", "global", "not_available", "batch"}

// billing is what usage says of its price: https://platform.claude.com/docs/en/about-claude/pricing.
func (u *usage) billing() (b dialect.Billing) {
	if u == nil {
		return b
	}
	b.LongCacheWrite, b.Mode = u.longWrite(), Mode(u.Speed, u.Geo, u.Tier)
	return b
}

// longWrite are the tokens that all passes wrote to the cache for an hour; nil if that is not known.
func (u *usage) longWrite() (sum *int64) {
	for _, pass := range u.passes() {
		if long := pass.Creation.Long; long != nil {
			sum = new(chat.SumTokens(*cmp.Or(sum, new(int64)), int64(*long)))
		}
	}
	return cmp.Or(sum, (*int64)(u.Creation.Long))
}

// Mode returns the mode with prices of its own that a speed, a region and a tier mean together; empty for the usual
// one.
func Mode(words ...string) string {
	return strings.Join(slices.DeleteFunc(words, func(mode string) bool { return slices.Contains(usualModes, mode) }), " ")
}

// Billing returns what the answer says of its price, except for the model that answered, which its output names.
func (m *Message) Billing() dialect.Billing { return m.Usage.billing() }

// fallbackOf returns the model that continues by a block of a document, which is an answer or an event; empty for none.
func fallbackOf(doc []byte) (model string) {
	if !dialect.Says(doc, `"`+FallbackBlock+`"`) {
		return ""
	}
	var w struct {
		Content []handoff
		Block   handoff `json:"content_block"`
	}
	if jsonread.Unmarshal(doc, &w) != nil {
		return ""
	}
	for _, b := range append(w.Content, w.Block) {
		if b.Type == FallbackBlock && b.To.Model != "" {
			model = b.To.Model
		}
	}
	return model
}
