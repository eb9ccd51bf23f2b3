package dialect

import (
	"cmp"
	"encoding/json"

	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
)

// NoParameters is the JSON Schema of a tool that is declared without one.
const NoParameters = `{"type":"object","properties":{}}`

// Arguments are the raw text of a call's arguments; some servers send the object itself.
type Arguments string

// TakeText implements jsonread.TextTaker.
func (a *Arguments) TakeText(text string) { *a = Arguments(text) }

// UnmarshalJSON takes a text as it is, and anything else as its JSON.
func (a *Arguments) UnmarshalJSON(raw []byte) error {
	var text *string
	switch err := json.Unmarshal(raw, &text); {
	case err != nil:
		*a = Arguments(raw)
	case text != nil:
		*a = Arguments(*text)
	}
	return nil
}

// ArgumentsOf are the arguments of a call as text; no arguments are an empty object.
func ArgumentsOf(call *toolv1.ToolCall) string { return cmp.Or(call.GetArgumentsJson(), "{}") }
