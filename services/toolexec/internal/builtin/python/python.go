// Package python is the tool that runs one Python program in a sandbox, in a new interpreter each time.
package python

import (
	"context"
	"encoding/json"

	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/services/toolexec/internal/builtin/command"
	"github.com/evalfleet/evalfleet/services/toolexec/internal/tool"
)

const name = "python"

const parameters = `{"type": "object", "properties": {"code": {"type": "string", "description": "The program's text. Only what it prints is returned."}}, "required": ["code"], "additionalProperties": false}`

const description = "Runs a Python 3 program and returns what it prints, errors first. Values that are not printed are not shown. Every call starts a new interpreter: files stay, but variables, imports and the working directory do not."

// Kind is the tool `python`.
func Kind() tool.Kind {
	return tool.Kind{
		Name:    name,
		Options: command.Schema(),
		New: func(raw json.RawMessage) (tool.Tool, error) {
			t := &python{}
			return t, json.Unmarshal(raw, &t.options)
		},
	}
}

type python struct{ options command.Options }

func (p *python) Definition() *tool.Definition {
	return &tool.Definition{
		Public: &toolv1.ToolDefinition{
			Info:         &toolv1.ToolInfo{Name: name, Description: description, ParametersJson: parameters},
			Parallel:     true,
			OnUnknown:    toolv1.OnUnknown_ON_UNKNOWN_RETRY, // safe to retry: its only command has a key
			NeedsSandbox: true,
		},
		View: command.View(name, "python", "code"),
	}
}

func (p *python) Call(ctx context.Context, call *tool.Call) (*tool.Result, error) {
	var arguments struct {
		Code string `json:"code"`
	}
	if err := json.Unmarshal(call.Arguments, &arguments); err != nil {
		return nil, err
	}
	// The login shell finds python3 in the PATH that the sandbox's profile sets.
	return p.options.Run(ctx, call, []string{"bash", "--login", "-c", "python3 -"}, arguments.Code)
}
