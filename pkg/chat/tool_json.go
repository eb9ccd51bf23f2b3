package chat

import (
	"encoding/json"

	"github.com/evalfleet/evalfleet/pkg/chat/encode"
	"github.com/evalfleet/evalfleet/pkg/chat/internal/lax"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
)

// noParameters is the schema of a tool without parameters.
const noParameters = `{"type":"object","properties":{},"required":[],"additionalProperties":false}`

// ParseTools reads a list of `{name, description, parameters, options}`. Schemas are kept as they are written.
func ParseTools(document []byte) ([]*toolv1.ToolInfo, error) { return parseList(document, parseTool) }

func parseTool(document []byte) (*toolv1.ToolInfo, error) {
	o, err := lax.Parse(document)
	if err != nil {
		return nil, err
	}
	tool := &toolv1.ToolInfo{
		Name:           o.RequireText("name"),
		Description:    o.Text("description"),
		ParametersJson: orElse(o.RawObject("parameters"), noParameters),
		OptionsJson:    o.RawObject("options"),
	}
	return tool, o.Err()
}

// ToolsJSON writes a list of tools.
func ToolsJSON(tools []*toolv1.ToolInfo) json.RawMessage {
	var w encode.Writer
	w.BeginList()
	for _, tool := range tools {
		w.BeginObject()
		w.TextMember("name", tool.GetName())
		w.TextMember("description", tool.GetDescription())
		w.RawMember("parameters", orElse(tool.GetParametersJson(), noParameters))
		w.RawUnlessEmpty("options", tool.GetOptionsJson())
		w.EndObject()
	}
	w.EndList()
	return w.Bytes()
}

// ParseToolChoice reads `auto`, `any`, `none` or `{"name": …}`. Null is nil.
func ParseToolChoice(document []byte) (*toolv1.ToolChoice, error) {
	o, err := lax.Parse(append(append([]byte(`{"tool_choice":`), document...), '}'))
	if err != nil {
		return nil, err
	}
	if o.Raw("tool_choice") == nil {
		return nil, nil // a choice that was not made
	}
	if word, ok := lax.AsText(o.Raw("tool_choice")); ok {
		mode, known := choiceModeNames.value(word)
		if !known {
			o.Fail("tool_choice", "must be auto, any, none or the name of a function")
		}
		return ModeChoice(mode), o.Err()
	}
	function := o.Object("tool_choice").RequireText("name")
	return FunctionChoice(function), o.Err()
}

// ToolChoiceJSON writes a choice; nil is `auto`.
func ToolChoiceJSON(choice *toolv1.ToolChoice) json.RawMessage {
	var w encode.Writer
	if function, ok := choice.GetChoice().(*toolv1.ToolChoice_Function); ok {
		w.BeginObject()
		w.TextMember("name", function.Function)
		w.EndObject()
	} else {
		w.Text(orElse(choiceModeNames[choice.GetMode()], "auto"))
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
