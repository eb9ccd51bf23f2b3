package texteditor_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/services/toolexec/internal/builtin/texteditor"
	"github.com/evalfleet/evalfleet/services/toolexec/internal/tool"
	"github.com/evalfleet/evalfleet/services/toolexec/internal/tool/tooltest"
)

const arguments = `{"command": "view", "path": "/a.txt"}`

// answering returns a sandbox in which the editor ends with the given result.
func answering(result *sandboxv1.ExecResult) *tooltest.Sandbox {
	return &tooltest.Sandbox{Answer: func(*sandboxv1.ExecSpec) (*sandboxv1.ExecResult, error) { return result, nil }}
}

func call(t *testing.T, sandbox *tooltest.Sandbox) (*tool.Result, error) {
	t.Helper()
	made, err := texteditor.Kind().New(json.RawMessage(`{"user": "alice"}`))
	require.NoError(t, err)
	return made.Call(t.Context(), tooltest.NewCall(arguments, sandbox))
}

func TestSuite(t *testing.T) {
	t.Parallel()
	tooltest.Run(t, tooltest.Harness{
		Kind:      texteditor.Kind(),
		Options:   []string{`{"timeout": 5, "user": "root", "sandbox": "db"}`},
		Refused:   []string{`{"timeout": -1}`},
		Arguments: []string{arguments, `{"command": "insert", "path": "a", "insert_line": 1, "new_str": "x", "view_range": null}`},
		Sandbox:   func() *tooltest.Sandbox { return answering(&sandboxv1.ExecResult{Stdout: []byte(`{"content": "x"}`)}) },
	})
}

func TestTheGuestEdits(t *testing.T) {
	t.Parallel()
	sandbox := answering(&sandboxv1.ExecResult{Stdout: []byte(`{"content": "shown"}`)})
	result, err := call(t, sandbox)
	require.NoError(t, err)
	assert.Equal(t, tool.Text("shown"), result)

	spec := sandbox.Specs()[0]
	assert.Equal(t, []string{"/guest", "text-editor"}, spec.GetArgv())
	assert.Equal(t, arguments, string(spec.GetStdin()))
	assert.Equal(t, "alice", spec.GetUser())
	assert.InDelta(t, 180, spec.GetTimeout().AsDuration().Seconds(), 0)
}

func TestAnEditHasABoundOfItsOwn(t *testing.T) {
	t.Parallel()
	made, err := texteditor.Kind().New(json.RawMessage(`{"timeout": 5}`))
	require.NoError(t, err)
	sandbox := answering(&sandboxv1.ExecResult{Stdout: []byte(`{"content": "shown"}`)})
	_, err = made.Call(t.Context(), tooltest.NewCall(arguments, sandbox))
	require.NoError(t, err)
	assert.InDelta(t, 5, sandbox.Specs()[0].GetTimeout().AsDuration().Seconds(), 0)
}

func TestErrorsOfTheEditor(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		result *sandboxv1.ExecResult
		want   toolv1.ToolErrorType
	}{
		{"of arguments", &sandboxv1.ExecResult{Stdout: []byte(`{"error": {"type": "parsing", "message": "say file_text"}}`)}, toolv1.ToolErrorType_TOOL_ERROR_TYPE_PARSING},
		{"of files", &sandboxv1.ExecResult{Stdout: []byte(`{"error": {"type": "unknown", "message": "no such file"}}`)}, toolv1.ToolErrorType_TOOL_ERROR_TYPE_UNKNOWN},
		{"of size", &sandboxv1.ExecResult{Stdout: []byte(`{"content": "x`), StdoutCutAt: new(int64(3))}, toolv1.ToolErrorType_TOOL_ERROR_TYPE_LIMIT},
		{"of time", &sandboxv1.ExecResult{TimedOut: true, ExitCode: new(int32(137))}, toolv1.ToolErrorType_TOOL_ERROR_TYPE_TIMEOUT},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			_, err := call(t, answering(c.result))
			told, ok := tool.Explain("text_editor", err)
			require.True(t, ok)
			assert.Equal(t, c.want, told.Type)
		})
	}

	_, err := call(t, answering(&sandboxv1.ExecResult{ExitCode: new(int32(127)), Stderr: []byte("no such program")}))
	require.ErrorContains(t, err, "no such program")
	_, told := tool.Explain("text_editor", err)
	assert.False(t, told, "a guest that gives no answer is our fault")
}
