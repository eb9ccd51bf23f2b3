package chat

import (
	"cmp"
	"encoding/json"

	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
)

// noParameters is the schema of a tool without parameters.
const noParameters = `{"type":"object","properties":{},"required":[],"additionalProperties":false}`

// ToolsJSON writes a list of tools.
func ToolsJSON(tools []*toolv1.ToolInfo) json.RawMessage {
	var w jsonwrite.Writer
	w.BeginList()
	for _, tool := range tools {
		w.BeginObject()
		w.TextMember("name", tool.GetName())
		w.TextMember("description", tool.GetDescription())
		w.RawMember("parameters", cmp.Or(tool.GetParametersJson(), noParameters))
		w.RawUnlessEmpty("options", tool.GetOptionsJson())
		w.EndObject()
	}
	w.EndList()
	return w.Bytes()
}

// ToolChoiceJSON writes a choice; nil is `auto`.
func ToolChoiceJSON(choice *toolv1.ToolChoice) json.RawMessage {
	var w jsonwrite.Writer
	if function, ok := choice.GetChoice().(*toolv1.ToolChoice_Function); ok {
		w.BeginObject()
		w.TextMember("name", function.Function)
		w.EndObject()
	} else {
		w.Text(cmp.Or(choiceModeNames[choice.GetMode()], "auto"))
	}
	return w.Bytes()
}

// ModeChoice returns the choice of a mode.
func ModeChoice(mode toolv1.ToolChoiceMode) *toolv1.ToolChoice {
	return &toolv1.ToolChoice{Choice: &toolv1.ToolChoice_Mode{Mode: mode}}
}

// FunctionChoice returns the choice of one function.
func FunctionChoice(name string) *toolv1.ToolChoice {
	return &toolv1.ToolChoice{Choice: &toolv1.ToolChoice_Function{Function: name}}
}
