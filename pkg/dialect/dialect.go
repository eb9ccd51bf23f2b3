// Package dialect holds what the formats of vendors have in common: how the raw arguments of a tool call become a call,
// how a data URI is read, and how server-sent events are. Each format is a package below.
//
// Everything here and below is pure: bytes and messages in, bytes and messages out, no I/O.
package dialect

import (
	"github.com/evalfleet/evalfleet/pkg/argument"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/json/orderedjson"
)

// ToolCall makes a call from what a model wrote. Arguments that cannot be read are a call with a parse error, which is
// never executed; the model is told so. tools are those that were on offer: bare text is bound to the first parameter
// of the one that is called.
func ToolCall(id, function, arguments string, tools []*toolv1.ToolInfo) *toolv1.ToolCall {
	call := &toolv1.ToolCall{Id: id, Function: function, Type: toolv1.ToolCallType_TOOL_CALL_TYPE_FUNCTION}
	parsed, err := argument.Parse(arguments, firstParameter(function, tools))
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
