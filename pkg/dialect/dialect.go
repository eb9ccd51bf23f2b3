// Package dialect is the port to vendors' formats, [Codec], and what several formats do in the same way: a format is a
// package below, with its own words in tables and its own structure, over these. CONTRIBUTING.md lists them.
//
// Everything here and below is pure: bytes and messages in, bytes and messages out, no I/O.
package dialect

import (
	"strings"

	"github.com/evalfleet/evalfleet/pkg/argument"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/json/orderedjson"
)

// NoContent is the text of an assistant's message without any, for servers that refuse an empty one.
const NoContent = "(no content)"

// ToolCall makes a call from a model's text. Unreadable arguments result in a call with a parse error, which is never
// executed; the model receives the error. tools are the offered tools: bare text is bound to the first parameter of the
// called tool.
func ToolCall(id, function, arguments string, tools []*toolv1.ToolInfo) *toolv1.ToolCall {
	call := &toolv1.ToolCall{Id: id, Function: function, Type: toolv1.ToolCallType_TOOL_CALL_TYPE_FUNCTION}
	first := ""
	if !strings.HasPrefix(strings.TrimSpace(arguments), "{") { // An object needs no parameter to be bound to.
		first = firstParameter(function, tools)
	}
	parsed, err := argument.Parse(arguments, first)
	if err != nil {
		call.ArgumentsJson, call.ParseError = "{}", new(err.Error())
		return call
	}
	call.ArgumentsJson = string(parsed)
	return call
}

// firstParameter returns the name of the first parameter of a tool; empty when it has none or is not on offer.
func firstParameter(function string, tools []*toolv1.ToolInfo) string {
	for _, tool := range tools {
		if tool.GetName() != function {
			continue
		}
		schema, err := orderedjson.DecodeObject([]byte(tool.GetParametersJson()))
		if err != nil {
			return ""
		}
		value, _ := schema.Get("properties")
		properties, ok := value.(*orderedjson.Object)
		if !ok {
			return ""
		}
		for name := range properties.All() {
			return name
		}
	}
	return ""
}
