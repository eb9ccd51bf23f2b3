// Package bash is the tool that runs one command line in a sandbox, in a new login shell each time.
package bash

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/services/toolexec/internal/builtin/command"
	"github.com/evalfleet/evalfleet/services/toolexec/internal/tool"
)

const name = "bash"

const parameters = `{"type": "object", "properties": {"command": {"type": "string", "description": "The command line, as bash reads it. It may have several lines."}}, "required": ["command"], "additionalProperties": false}`

const description = "Runs a command line in bash and returns what it prints, errors first. Every call starts a new shell: files stay, but variables, the working directory and aliases do not. Standard input is empty."

// background is the hint for jobs that outlast a call.
const background = " A job that takes long should be detached, for example `nohup make > make.log 2>&1 & echo $!`, which also prints its process id. Look after it in later calls with `ps -p PID` or `tail make.log`, and do other work in between instead of sleeping."

type options struct {
	command.Options

	Background bool `json:"background"`
}

// Kind is the tool `bash`.
func Kind() tool.Kind {
	return tool.Kind{
		Name:    name,
		Options: command.Schema(`"background": {"type": "boolean", "description": "Advise the model on jobs that outlast a call."}`),
		New: func(raw json.RawMessage) (tool.Tool, error) {
			t := &bash{}
			return t, json.Unmarshal(raw, &t.options)
		},
	}
}

type bash struct{ options options }

func (b *bash) Definition() *tool.Definition {
	return &tool.Definition{
		Public: &toolv1.ToolDefinition{
			Info:         &toolv1.ToolInfo{Name: name, Description: b.description(), ParametersJson: parameters},
			Parallel:     true,
			OnUnknown:    toolv1.OnUnknown_ON_UNKNOWN_RETRY, // safe to retry: its only command has a key
			NeedsSandbox: true,
		},
		View: command.View(name, "bash", "command"),
	}
}

func (b *bash) description() string {
	text := description
	if b.options.Background {
		text += background
	}
	if seconds := b.options.TimeoutSeconds; b.options.Background && seconds > 0 {
		text += fmt.Sprintf(" A call that takes longer than %s seconds is ended.", strconv.FormatFloat(seconds, 'f', -1, 64))
	}
	return text
}

func (b *bash) Call(ctx context.Context, call *tool.Call) (*tool.Result, error) {
	var arguments struct {
		Command string `json:"command"`
	}
	if err := json.Unmarshal(call.Arguments, &arguments); err != nil {
		return nil, err
	}
	return b.options.Run(ctx, call, []string{"bash", "--login", "-c", arguments.Command}, "")
}
