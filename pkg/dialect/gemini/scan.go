package gemini

import (
	"github.com/evalfleet/evalfleet/pkg/dialect"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonread"
	"github.com/evalfleet/evalfleet/pkg/json/jsonscan"
)

// scanned are the members of an answer, or of a piece of it, that ScanUsage looks for.
var scanned = []string{"responseId", "usageMetadata"}

var (
	finishAt = dialect.NewWordPath("candidates", "finishReason")
	blockAt  = dialect.NewWordPath("promptFeedback", "blockReason")
)

// ScanUsage implements dialect.Codec.
func (Codec) ScanUsage(doc []byte, facts *dialect.Facts) {
	if string(doc) == done {
		return
	}
	facts.Pieces++
	if dialect.Says(doc, `"functionCall"`) { // Before the finish reason, which is that of an answer without calls.
		facts.StopReason = modelv1.StopReason_STOP_REASON_TOOL_CALLS
	}
	if finish, ok := finishAt.Of(doc); ok {
		facts.StopReason = stopReason(finish, facts.StopReason == modelv1.StopReason_STOP_REASON_TOOL_CALLS)
		facts.Ended = true
	} else if _, blocked := blockAt.Of(doc); blocked {
		facts.StopReason, facts.Ended = filtered, true
	}
	facts.Failed = facts.Failed || !dialect.Says(doc, `"candidates"`) && dialect.Says(doc, `"error"`)
	var found [2]jsonscan.Span
	jsonscan.Edges(doc, scanned, found[:])
	if !found[1].Found() && dialect.Says(doc, `"usageMetadata"`) && jsonscan.Object(doc, scanned, found[:]) != nil {
		return
	}
	if id, ok := jsonscan.Text(found[0].Of(doc)); ok {
		facts.ID = id
	}
	var u *usage
	if jsonread.Unmarshal(found[1].Of(doc), &u) == nil && u != nil {
		facts.Usage = u.message()
	}
}
