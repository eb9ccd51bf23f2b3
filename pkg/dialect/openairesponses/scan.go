package openairesponses

import (
	"strings"

	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/json/jsonread"
	"github.com/evalfleet/evalfleet/pkg/json/jsonscan"
)

// scanned are the members of an answer, or of an event, that ScanUsage looks for.
var scanned = []string{"type", "response", "id", "status", "error", "incomplete_details", "usage"}

// ScanUsage implements dialect.Codec.
func (Codec) ScanUsage(doc []byte, facts *dialect.Facts) {
	found := scan(doc)
	kind, isEvent := jsonscan.Text(found[0].Of(doc))
	switch {
	case !isEvent:
		scanResponse(doc, facts)
	case kind == eventError:
		facts.Failed = true
	case found[1].Found():
		scanResponse(found[1].Of(doc), facts)
		facts.Ended = facts.Ended || kind == eventCompleted || kind == eventIncomplete
		facts.Failed = facts.Failed || kind == eventFailed
	case strings.HasSuffix(kind, ".delta"), kind == eventAdded:
		facts.Pieces++
	}
}

// scan finds the members near the ends of a document, or if the first of them are not there, anywhere.
func scan(doc []byte) (found [7]jsonscan.Span) {
	jsonscan.Edges(doc, scanned, found[:])
	if !found[0].Found() && !found[3].Found() && jsonscan.Object(doc, scanned, found[:]) != nil {
		return [7]jsonscan.Span{}
	}
	return found
}

// scanResponse adds the facts of an answer.
func scanResponse(doc []byte, facts *dialect.Facts) {
	found := scan(doc)
	var r response
	r.Status, _ = jsonscan.Text(found[3].Of(doc))
	if id, ok := jsonscan.Text(found[2].Of(doc)); ok {
		facts.ID = id
	}
	facts.Failed = facts.Failed || r.Status == statusFailed || r.Status == "" && jsonread.IsSet(found[4].Of(doc))
	if r.Status == statusCompleted || r.Status == statusIncomplete {
		_ = jsonread.Unmarshal(found[5].Of(doc), &r.Incomplete)
		facts.StopReason = r.stopReason(dialect.Says(doc, `"call_id"`))
	}
	if jsonread.Unmarshal(found[6].Of(doc), &r.Usage) == nil && r.Usage != nil {
		facts.Usage = r.Usage.message()
		r.Tier, _ = serviceTier.Of(doc)
		facts.Billing = facts.Billing.With(r.Billing())
	}
}

// serviceTier is the service tier of an answer. Only the answer's own member counts: its metadata are what the client
// wrote.
var serviceTier = dialect.NewWordPath("service_tier")
