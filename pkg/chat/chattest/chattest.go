// Package chattest reads recorded test data, and makes outputs for tests. No service reads these forms.
package chattest

import (
	"encoding/json"
	"fmt"

	"github.com/evalfleet/evalfleet/pkg/chat"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
)

// Messages reads a list of messages, whose ids stay as they are, also if there is none.
func Messages(document []byte) ([]*modelv1.ChatMessage, error) {
	var items []json.RawMessage
	if err := json.Unmarshal(document, &items); err != nil {
		return nil, err
	}
	messages := make([]*modelv1.ChatMessage, len(items))
	for i, item := range items {
		var err error
		if messages[i], err = chat.ParseStoredMessage(item); err != nil {
			return nil, fmt.Errorf("item %d: %w", i, err)
		}
	}
	return messages, nil
}

// noParameters is the schema of a tool that was recorded without one.
const noParameters = `{"type":"object","properties":{},"required":[],"additionalProperties":false}`

// Tools reads a list of `{name, description, parameters, options}`. Schemas are kept unchanged.
func Tools(document []byte) ([]*toolv1.ToolInfo, error) {
	var items []struct {
		Name        string          `json:"name"`
		Description string          `json:"description"`
		Parameters  json.RawMessage `json:"parameters"`
		Options     json.RawMessage `json:"options"`
	}
	if err := json.Unmarshal(document, &items); err != nil {
		return nil, err
	}
	tools := make([]*toolv1.ToolInfo, len(items))
	for i, item := range items {
		tools[i] = &toolv1.ToolInfo{Name: item.Name, Description: item.Description, ParametersJson: noParameters}
		if text := string(item.Parameters); text != "" && text != "null" {
			tools[i].ParametersJson = text
		}
		if text := string(item.Options); text != "null" {
			tools[i].OptionsJson = text
		}
	}
	return tools, nil
}

// modes are the words for modes of a choice.
var modes = map[string]toolv1.ToolChoiceMode{
	"auto": toolv1.ToolChoiceMode_TOOL_CHOICE_MODE_AUTO, "any": toolv1.ToolChoiceMode_TOOL_CHOICE_MODE_ANY,
	"none": toolv1.ToolChoiceMode_TOOL_CHOICE_MODE_NONE,
}

// ToolChoice reads `auto`, `any`, `none` or `{"name": …}`; null is nil.
func ToolChoice(document []byte) (*toolv1.ToolChoice, error) {
	var word *string
	if err := json.Unmarshal(document, &word); err == nil {
		if word == nil {
			return nil, nil // a choice that was not made
		}
		mode, known := modes[*word]
		if !known {
			return nil, fmt.Errorf("no choice of tools is %q", *word)
		}
		return chat.ModeChoice(mode), nil
	}
	var function struct {
		Name string `json:"name"`
	}
	if err := json.Unmarshal(document, &function); err != nil {
		return nil, err
	}
	return chat.FunctionChoice(function.Name), nil
}

// Says is an output with a text and a normal stop.
func Says(model, text string) *modelv1.ModelOutput {
	return chat.MessageOutput(model, chat.Assistant(text), modelv1.StopReason_STOP_REASON_STOP)
}
