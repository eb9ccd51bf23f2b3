package bedrockconverse

import (
	"bytes"
	"encoding/json"

	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/json/jsonscan"
)

// scanned are the members of an answer, or of an event, that ScanUsage looks for.
var scanned = []string{"usage", "metadata", eventStop}

// ScanUsage implements dialect.Codec.
func (Codec) ScanUsage(doc []byte, facts *dialect.Facts) {
	facts.Pieces++
	if word, ok := dialect.Word(doc, `"stopReason"`); ok {
		facts.StopReason = stopReason(word)
		facts.Ended = facts.Ended || dialect.Says(doc, `"`+eventStop+`"`) || dialect.Says(doc, `"output"`)
	}
	failed := bytes.HasPrefix(bytes.TrimSpace(doc), []byte(`{"`+eventError+`"`)) || dialect.Says(doc, `"__type"`) && !dialect.Says(doc, `"output"`)
	facts.Failed = facts.Failed || failed
	var found [3]jsonscan.Span
	jsonscan.Edges(doc, scanned, found[:])
	within, at := doc, found[0]
	if found[1].Found() {
		within = found[1].Of(doc)
		var inner [1]jsonscan.Span
		if jsonscan.Object(within, scanned[:1], inner[:]) != nil {
			return
		}
		at = inner[0]
	} else if !at.Found() && dialect.Says(doc, `"inputTokens"`) && jsonscan.Object(doc, scanned, found[:]) == nil {
		at = found[0]
	}
	var u *usage
	if json.Unmarshal(at.Of(within), &u) == nil && u != nil {
		facts.Usage = u.message()
	}
}
