package dialect

import (
	"strings"

	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
)

// Remainder finds what the pieces of an answer did not contain of its texts, or of its reasoning. It belongs to a
// StreamWriter that closes its answer.
type Remainder struct {
	// Said is the pieces' text of the parts that are not yet visited.
	Said string
	// All means that nothing is missing.
	All bool
}

// Of returns the missing rest of the next part's text, and whether the pieces have begun it. If the pieces differ from
// the text, nothing counts as missing from there on: an answer may be reordered once it is complete.
func (r *Remainder) Of(text string) (missing string, begun bool) {
	if r.All {
		return "", true
	}
	if rest, ok := strings.CutPrefix(text, r.Said); ok {
		begun, r.Said = r.Said != "", ""
		return rest, begun
	}
	rest, ok := strings.CutPrefix(r.Said, text)
	r.Said, r.All = rest, !ok
	return "", true
}

// CallRemainder finds what the pieces of an answer did not contain of its calls: some APIs send no piece of arguments
// that are empty. The zero value is of no pieces.
type CallRemainder struct {
	// begun are the calls of which a piece was written, by index: whether it had arguments.
	begun map[int32]bool
}

// Add takes a piece that was written.
func (r *CallRemainder) Add(piece *modelv1.ToolCallDelta) {
	if r.begun == nil {
		r.begun = map[int32]bool{}
	}
	r.begun[piece.GetIndex()] = r.begun[piece.GetIndex()] || piece.GetArguments() != ""
}

// Of returns the missing piece of the call at an index: all of it, or its arguments; nil if nothing is missing.
func (r *CallRemainder) Of(index int32, call *toolv1.ToolCall) *modelv1.ToolCallDelta {
	switch arguments, begun := r.begun[index]; {
	case arguments:
		return nil
	case begun:
		return &modelv1.ToolCallDelta{Index: index, Arguments: ArgumentsOf(call)}
	default:
		return &modelv1.ToolCallDelta{Index: index, Id: call.GetId(), Function: call.GetFunction(), Arguments: ArgumentsOf(call)}
	}
}
