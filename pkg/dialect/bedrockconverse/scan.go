package bedrockconverse

import (
	"bytes"
	"cmp"

	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/json/jsonread"
	"github.com/evalfleet/evalfleet/pkg/json/jsonscan"
)

// scanned are the members of an answer, or of an event, that ScanUsage looks for.
var scanned = []string{"usage", "metadata", "stopReason", eventStop}

// within are those of the members of an answer that an event has within a member of its own.
var within = []string{"usage", "stopReason"}

// ScanUsage implements dialect.Codec. The arguments of a call are JSON within an answer, and may have members of any
// name, so that the members are looked for in their places.
func (Codec) ScanUsage(doc []byte, facts *dialect.Facts) {
	facts.Pieces++
	failed := bytes.HasPrefix(bytes.TrimSpace(doc), []byte(`{"`+eventError+`"`)) || dialect.Says(doc, `"__type"`) && !dialect.Says(doc, `"output"`)
	facts.Failed = facts.Failed || failed
	said := dialect.Says(doc, `"stopReason"`)
	if !said && !dialect.Says(doc, `"inputTokens"`) {
		return
	}
	var found [4]jsonscan.Span
	jsonscan.Edges(doc, scanned, found[:])
	event := cmp.Or(found[1], found[3])
	if !event.Found() && (said && !found[2].Found() || !found[0].Found()) && jsonscan.Object(doc, scanned, found[:]) != nil {
		return
	}
	usageAt, reasonAt := found[0].Of(doc), found[2].Of(doc)
	if event.Found() {
		inner, at := event.Of(doc), [2]jsonscan.Span{}
		if jsonscan.Object(inner, within, at[:]) != nil {
			return
		}
		usageAt, reasonAt = at[0].Of(inner), at[1].Of(inner)
	}
	if word, ok := jsonscan.Text(reasonAt); ok {
		facts.StopReason, facts.Ended = stopReasons.Of(word), true
	}
	var u *usage
	if jsonread.Unmarshal(usageAt, &u) == nil && u != nil {
		facts.Usage = u.message()
	}
}
