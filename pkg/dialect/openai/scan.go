package openai

import (
	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonscan"
)

// scanned are the members of a chat completion, or of a chunk of one, that ScanCompletion looks for.
var scanned = []string{"id", "usage", "service_tier", "x_groq"}

// usageOf returns the usage among the members, or Groq's own, whose streams may have it there alone.
func usageOf(doc []byte, found []jsonscan.Span) []byte {
	if said := found[1].Of(doc); len(said) > 0 && string(said) != "null" {
		return said
	}
	own := found[3].Of(doc)
	var within [1]jsonscan.Span
	if jsonscan.Object(own, scanned[1:2], within[:]) != nil {
		return nil
	}
	return within[0].Of(own)
}

var finishReason = dialect.NewWordPath("choices", "finish_reason")

// ScanCompletion adds the facts of a chat completion, or of a chunk of one, to facts. usage decodes the usage, and
// returns nil if it cannot.
func ScanCompletion(doc []byte, facts *dialect.Facts, usage func(raw []byte) *modelv1.ModelUsage) {
	facts.Pieces++
	if word, ok := finishReason.Of(doc); ok {
		facts.StopReason = chat.ProviderStopReason(word)
		facts.Ended = true // Some servers leave out the last event.
	}
	facts.Failed = facts.Failed || !dialect.Says(doc, `"choices"`) && dialect.Says(doc, `"error"`)
	usageComes := dialect.Says(doc, `"prompt_tokens"`)
	if facts.ID != "" && !usageComes {
		return
	}
	var found [4]jsonscan.Span
	all := jsonscan.Edges(doc, scanned, found[:])
	lacks := !all && (!found[1].Found() || !found[2].Found() && dialect.Says(doc, `"service_tier"`))
	if usageComes && lacks && jsonscan.Object(doc, scanned, found[:]) != nil {
		return
	}
	if id, ok := jsonscan.Text(found[0].Of(doc)); ok {
		facts.ID = id
	}
	if !usageComes {
		return
	}
	if u := usage(usageOf(doc, found[:])); u != nil {
		facts.Usage = u
		tier, _ := jsonscan.Text(found[2].Of(doc))
		facts.Billing = facts.Billing.With(dialect.Billing{Mode: Mode(tier)})
	}
}
