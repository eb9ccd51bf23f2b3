// Package command runs one command in a sandbox for a tool and converts its output into the result for the model. The
// tools bash and python are built on it.
package command

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/seconds"
	"github.com/evalfleet/evalfleet/services/toolexec/internal/tool"
)

// keptBytes bounds the retained part of each output stream, half from its head and half from its tail. It is far above
// the bound of a result.
const keptBytes = 1 << 20

// Options are the options that a run may set for a tool that runs commands.
type Options struct {
	// TimeoutSeconds bounds one call; 0 means no bound.
	TimeoutSeconds float64 `json:"timeout"`
	// User is the account inside the sandbox; "" means the sandbox's default.
	User string `json:"user"`
	// Sandbox names the environment; "" means the run's choice.
	Sandbox string `json:"sandbox"`
}

// Schema returns the JSON Schema of Options with additional properties, each as `"name": {…}`.
func Schema(further ...string) json.RawMessage {
	properties := append([]string{
		`"timeout": {"type": "number", "exclusiveMinimum": 0, "description": "Seconds that one call may take."}`,
		`"user": {"type": "string", "description": "Account inside the sandbox."}`,
		`"sandbox": {"type": "string", "description": "Name of the sandbox environment."}`,
	}, further...)
	return json.RawMessage(`{"type": "object", "properties": {` + strings.Join(properties, ", ") + `}, "additionalProperties": false}`)
}

// Timeout returns the bound of one call; 0 means none.
func (o Options) Timeout() time.Duration { return seconds.Duration(o.TimeoutSeconds) }

// Run runs argv with the account, environment and bound of o, and returns standard error, a line break if standard
// error is not empty, and standard output. The exit code is not shown. A command that exceeds its bound is a time-out
// error with its output so far.
func (o Options) Run(ctx context.Context, call *tool.Call, argv []string, stdin string) (*tool.Result, error) {
	sandbox, err := call.Sandbox(o.Sandbox)
	if err != nil {
		return nil, err
	}
	spec := &sandboxv1.ExecSpec{Argv: argv, Stdin: []byte(stdin), User: o.User, MaxOutputBytes: new(int64(keptBytes))}
	if timeout := o.Timeout(); timeout > 0 {
		spec.Timeout = durationpb.New(timeout)
	}
	result, err := sandbox.Exec(ctx, spec)
	if err != nil {
		return nil, err
	}
	output, omitted := render(result)
	switch {
	case result.GetTimedOut():
		timeout := tool.Timeout(output)
		timeout.OmittedBytes = omitted
		return nil, timeout
	case result.GetCancelled():
		return nil, &tool.Error{
			Type:         toolv1.ToolErrorType_TOOL_ERROR_TYPE_CANCELLED,
			Message:      "the command was stopped before it finished",
			Output:       output,
			OmittedBytes: omitted,
		}
	}
	shown := tool.Text(output)
	shown.OmittedBytes = omitted
	return shown, nil
}

// render joins both streams, and returns how many bytes were omitted from them.
func render(result *sandboxv1.ExecResult) (output string, omittedBytes int64) {
	var b strings.Builder
	b.WriteString(streamText(result.GetStderr(), result.StderrCutAt))
	if b.Len() > 0 {
		b.WriteByte('\n')
	}
	b.WriteString(streamText(result.GetStdout(), result.StdoutCutAt))
	omittedBytes = max(0, result.GetStderrBytes()-int64(len(result.GetStderr()))) + max(0, result.GetStdoutBytes()-int64(len(result.GetStdout())))
	return b.String(), omittedBytes
}

// streamText decodes the two ends of a stream separately, so that no character is decoded across the cut.
func streamText(stream []byte, cutAt *int64) string {
	if cutAt == nil || *cutAt < 0 || *cutAt > int64(len(stream)) {
		return decode(stream)
	}
	return decode(stream[:*cutAt]) + decode(stream[*cutAt:])
}
