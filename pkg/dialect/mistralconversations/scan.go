package mistralconversations

import (
	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/mistral"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonread"
	"github.com/evalfleet/evalfleet/pkg/json/jsonscan"
)

// scanned are the members of an answer, or of an event, that ScanUsage looks for.
var scanned = []string{"type", "object", "conversation_id", "usage"}

const toolCalls = modelv1.StopReason_STOP_REASON_TOOL_CALLS

// ScanUsage implements dialect.Codec.
func (Codec) ScanUsage(doc []byte, facts *dialect.Facts) {
	var found [4]jsonscan.Span
	jsonscan.Edges(doc, scanned, found[:])
	if !found[0].Found() && !found[1].Found() && jsonscan.Object(doc, scanned, found[:]) != nil {
		return
	}
	if id, ok := jsonscan.Text(found[2].Of(doc)); ok {
		facts.ID = id
	}
	object, _ := jsonscan.Text(found[1].Of(doc))
	name, _ := jsonscan.Text(found[0].Of(doc))
	switch {
	case object == mistral.ObjectError || name == eventError:
		facts.Failed = true
	case found[0].Found():
		scanEvent(name, facts)
	case dialect.Says(doc, `"`+typeCall+`"`):
		facts.StopReason = toolCalls
	default:
		facts.StopReason = modelv1.StopReason_STOP_REASON_STOP
	}
	var u *mistral.Usage
	if jsonread.Unmarshal(found[3].Of(doc), &u) == nil && u != nil {
		facts.Usage = u.Message()
	}
}

// scanEvent adds what the type of an event says.
func scanEvent(name string, facts *dialect.Facts) {
	switch name {
	case eventDone:
		facts.Ended = true
		if facts.StopReason != toolCalls {
			facts.StopReason = modelv1.StopReason_STOP_REASON_STOP
		}
	case eventCall:
		facts.Pieces++
		facts.StopReason = toolCalls
	case eventMessage, toolStarted, toolArguments, toolDone:
		facts.Pieces++
	}
}
