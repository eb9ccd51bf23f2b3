package openaichat

import (
	"encoding/json"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/json/jsonscan"
)

// scanned are the members of an answer, or of a chunk, that ScanUsage looks for.
var scanned = []string{"id", "usage"}

// ScanUsage implements dialect.Codec.
func (Codec) ScanUsage(doc []byte, facts *dialect.Facts) {
	if string(doc) == done {
		facts.Ended = true
		return
	}
	facts.Pieces++
	if word, ok := dialect.Word(doc, `"finish_reason"`); ok {
		facts.StopReason = chat.ProviderStopReason(word)
		facts.Ended = true // Some servers leave out the last event.
	}
	facts.Failed = facts.Failed || !dialect.Says(doc, `"choices"`) && dialect.Says(doc, `"error"`)
	usageComes := dialect.Says(doc, `"prompt_tokens"`)
	if facts.ID != "" && !usageComes {
		return
	}
	var found [2]jsonscan.Span
	jsonscan.Edges(doc, scanned, found[:])
	if usageComes && !found[1].Found() && jsonscan.Object(doc, scanned, found[:]) != nil {
		return
	}
	if id, ok := jsonscan.Text(found[0].Of(doc)); ok {
		facts.ID = id
	}
	var u *usage
	if usageComes && json.Unmarshal(found[1].Of(doc), &u) == nil && u != nil {
		facts.Usage = u.message()
	}
}
