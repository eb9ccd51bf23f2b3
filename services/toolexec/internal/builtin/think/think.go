// Package think is the tool that does nothing: it lets a model write down a thought.
package think

import (
	"context"
	"encoding/json"

	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/json/orderedjson"
	"github.com/evalfleet/evalfleet/services/toolexec/internal/tool"
)

const name = "think"

const (
	description        = "Writes a thought down. It finds nothing out and changes nothing; use it to reason about what is known so far, to check a plan, or to decide what comes next."
	thoughtDescription = "The thought."
)

// Kind is the tool `think`.
func Kind() tool.Kind {
	return tool.Kind{
		Name: name,
		Options: json.RawMessage(`{"type": "object", "properties": {` +
			`"description": {"type": "string", "minLength": 1, "description": "Replaces the tool's description."}, ` +
			`"thought_description": {"type": "string", "minLength": 1, "description": "Replaces the parameter's description."}` +
			`}, "additionalProperties": false}`),
		New: func(raw json.RawMessage) (tool.Tool, error) {
			t := &think{Description: description, ThoughtDescription: thoughtDescription}
			return t, json.Unmarshal(raw, t)
		},
	}
}

type think struct {
	Description        string `json:"description"`
	ThoughtDescription string `json:"thought_description"`
}

func (t *think) Definition() *tool.Definition {
	var thought orderedjson.Object
	thought.Set("type", "string")
	thought.Set("description", t.ThoughtDescription)
	return &tool.Definition{
		Public: &toolv1.ToolDefinition{
			Info: &toolv1.ToolInfo{
				Name:        name,
				Description: t.Description,
				ParametersJson: `{"type": "object", "properties": {"thought": ` + string(orderedjson.Append(nil, &thought)) +
					`}, "required": ["thought"], "additionalProperties": false}`,
			},
			Parallel:  true,
			OnUnknown: toolv1.OnUnknown_ON_UNKNOWN_RETRY,
		},
		View: view,
	}
}

func (t *think) Call(context.Context, *tool.Call) (*tool.Result, error) {
	return tool.Text(""), nil
}

// view shows the thought as plain text.
func view(arguments json.RawMessage) *toolv1.ToolCallContent {
	var shown struct {
		Thought string `json:"thought"`
	}
	if json.Unmarshal(arguments, &shown) != nil {
		return nil
	}
	return &toolv1.ToolCallContent{Format: toolv1.ViewFormat_VIEW_FORMAT_MARKDOWN, Content: shown.Thought}
}
