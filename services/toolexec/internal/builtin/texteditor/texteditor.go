// Package texteditor is the tool that views and edits files in a sandbox.
//
// The guest program does the editing inside the sandbox. It also keeps the history for undo_edit, which all editors of
// one sandbox share. This package only passes the arguments in and the answer out.
package texteditor

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/services/toolexec/internal/builtin/command"
	"github.com/evalfleet/evalfleet/services/toolexec/internal/tool"
)

const name = "text_editor"

// defaultTimeout bounds one call if the run sets no other bound.
const defaultTimeout = 180 * time.Second

const description = `Views, creates and edits files. Edits last between calls.
- view shows a file with numbered lines, or the entries of a directory two levels deep without hidden ones.
- create writes a new file. It does not replace a file that exists.
- str_replace replaces one text by another. old_str must occur exactly once, with its blanks and line breaks as they are in the file, so give enough of its surroundings.
- insert adds text after a line.
- undo_edit takes the last edit of a file back.`

const parameters = `{"type": "object", "properties": {` +
	`"command": {"type": "string", "enum": ["view", "create", "str_replace", "insert", "undo_edit"], "description": "What to do."}, ` +
	`"path": {"type": "string", "description": "The file or directory, as an absolute path."}, ` +
	`"file_text": {"anyOf": [{"type": "string"}, {"type": "null"}], "description": "For create: the content of the file."}, ` +
	`"insert_line": {"anyOf": [{"type": "integer"}, {"type": "null"}], "description": "For insert: the number of the line after which to insert; 0 is before the first."}, ` +
	`"insert_text": {"anyOf": [{"type": "string"}, {"type": "null"}], "description": "For insert: the text to insert."}, ` +
	`"new_str": {"anyOf": [{"type": "string"}, {"type": "null"}], "description": "For str_replace: what to put in the place of old_str; nothing when absent. For insert: the text to insert."}, ` +
	`"old_str": {"anyOf": [{"type": "string"}, {"type": "null"}], "description": "For str_replace: the text to replace."}, ` +
	`"view_range": {"anyOf": [{"type": "array", "items": {"type": "integer"}}, {"type": "null"}], "description": "For view of a file: the first and the last line, counted from 1; -1 as the last is the end of the file."}` +
	`}, "required": ["command", "path"], "additionalProperties": false}`

// Kind is the tool `text_editor`.
func Kind() tool.Kind {
	return tool.Kind{
		Name:    name,
		Options: command.Schema(),
		New: func(raw json.RawMessage) (tool.Tool, error) {
			t := &editor{}
			return t, json.Unmarshal(raw, &t.options)
		},
	}
}

type editor struct{ options command.Options }

func (e *editor) Definition() *tool.Definition {
	return &tool.Definition{
		Public: &toolv1.ToolDefinition{
			Info:         &toolv1.ToolInfo{Name: name, Description: description, ParametersJson: parameters},
			OnUnknown:    toolv1.OnUnknown_ON_UNKNOWN_RETRY, // its one command has a key
			NeedsSandbox: true,
		},
	}
}

// answer is the output of the guest program.
type answer struct {
	Content string `json:"content"`
	Error   *struct {
		// Type is `parsing` for invalid arguments, else `unknown`.
		Type    string `json:"type"`
		Message string `json:"message"`
	} `json:"error"`
}

func (e *editor) Call(ctx context.Context, call *tool.Call) (*tool.Result, error) {
	sandbox, err := call.Sandbox(e.options.Sandbox)
	if err != nil {
		return nil, err
	}
	guest, err := sandbox.GuestPath(ctx)
	if err != nil {
		return nil, err
	}
	timeout := e.options.Timeout()
	if timeout == 0 {
		timeout = defaultTimeout
	}
	result, err := sandbox.Exec(ctx, &sandboxv1.ExecSpec{
		Argv:    []string{guest, "text-editor"},
		Stdin:   call.Arguments,
		User:    e.options.User,
		Timeout: durationpb.New(timeout),
	})
	if err != nil {
		return nil, err
	}
	switch {
	case result.GetTimedOut():
		return nil, tool.Timeout("")
	case result.StdoutCutAt != nil:
		return nil, tool.OverOutputLimit(int64(len(result.GetStdout())), "")
	default:
		return read(result)
	}
}

// read converts the guest program's answer into the tool's result. Any other output is a fault of the platform, not of
// the model.
func read(result *sandboxv1.ExecResult) (*tool.Result, error) {
	var a answer
	if err := json.Unmarshal(result.GetStdout(), &a); err != nil {
		return nil, fmt.Errorf("the editor in the sandbox ended with code %d and no answer: %.500s", result.GetExitCode(), result.GetStderr())
	}
	switch {
	case a.Error == nil:
		return tool.Text(a.Content), nil
	case a.Error.Type == "parsing":
		return nil, tool.Parsingf("%s", a.Error.Message)
	default:
		return nil, tool.Errorf("%s", a.Error.Message)
	}
}
