package anthropic

import (
	"fmt"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/dialect"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
)

// openCalls are the calls of a conversation without results: all results of a model's turn belong in the user's turn
// after it. The vendor refuses any other conversation, and other vendors' models handle it badly.
type openCalls struct {
	calls []*toolv1.ToolCall
	// turn is the message that makes them.
	turn int
}

// open adds the calls of a message.
func (o *openCalls) open(turn int, calls []*toolv1.ToolCall) {
	if len(calls) > 0 {
		o.calls, o.turn = append(o.calls, calls...), turn
	}
}

// answer returns the name of the tool of a result. It fails if no call waits for the result.
func (o *openCalls) answer(id string) (function string, err error) {
	for i, call := range o.calls {
		if call.GetId() == id {
			o.calls = append(o.calls[:i:i], o.calls[i+1:]...)
			return call.GetFunction(), nil
		}
	}
	return "", dialect.Invalid("", "unexpected `tool_use_id` found in `tool_result` blocks: %s. Each `tool_result` block must have a corresponding `tool_use` block in the previous message", id)
}

// closed fails if a call has no result at the point where no further result can follow.
func (o *openCalls) closed() error {
	if len(o.calls) == 0 {
		return nil
	}
	ids := make([]string, len(o.calls))
	for i, call := range o.calls {
		ids[i] = call.GetId()
	}
	return dialect.Invalid(fmt.Sprintf("messages.%d", o.turn),
		"`tool_use` ids were found without `tool_result` blocks immediately after: %s. Each `tool_use` block must have a corresponding `tool_result` block in the next message",
		strings.Join(ids, ", "))
}
