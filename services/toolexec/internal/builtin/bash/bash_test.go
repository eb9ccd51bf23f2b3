package bash_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/services/toolexec/internal/builtin/bash"
	"github.com/evalfleet/evalfleet/services/toolexec/internal/tool"
	"github.com/evalfleet/evalfleet/services/toolexec/internal/tool/tooltest"
)

func TestSuite(t *testing.T) {
	t.Parallel()
	tooltest.Run(t, tooltest.Harness{
		Kind:      bash.Kind(),
		Options:   []string{`{"timeout": 1.5, "user": "root", "sandbox": "db"}`, `{"background": true, "timeout": 30}`},
		Refused:   []string{`{"timeout": 0}`, `{"timeout": "30"}`, `{"background": "yes"}`},
		Arguments: []string{`{"command": "ls"}`, `{"command": ""}`},
		Sandbox:   func() *tooltest.Sandbox { return &tooltest.Sandbox{} },
	})
}

func TestCommandOfACall(t *testing.T) {
	t.Parallel()
	made, err := bash.Kind().New(json.RawMessage(`{"timeout": 1.5, "user": "alice", "sandbox": "db"}`))
	require.NoError(t, err)
	sandbox := &tooltest.Sandbox{}
	_, err = made.Call(t.Context(), tooltest.NewCall(`{"command": "echo 'a b'"}`, sandbox))
	require.NoError(t, err)

	require.Len(t, sandbox.Specs(), 1)
	spec := sandbox.Specs()[0]
	assert.Equal(t, []string{"bash", "--login", "-c", "echo 'a b'"}, spec.GetArgv())
	assert.Empty(t, spec.GetStdin())
	assert.Equal(t, "alice", spec.GetUser())
	assert.InDelta(t, 1.5, spec.GetTimeout().AsDuration().Seconds(), 0)
	assert.Equal(t, []string{"db"}, sandbox.Environments())
}

func TestBackgroundOnlyAdvises(t *testing.T) {
	t.Parallel()
	plain, err := bash.Kind().New(json.RawMessage(`{"timeout": 30}`))
	require.NoError(t, err)
	advising, err := bash.Kind().New(json.RawMessage(`{"timeout": 30, "background": true}`))
	require.NoError(t, err)

	was, is := plain.Definition().Public.GetInfo(), advising.Definition().Public.GetInfo()
	assert.NotContains(t, was.GetDescription(), "nohup")
	assert.Contains(t, is.GetDescription(), "nohup")
	assert.Contains(t, is.GetDescription(), "30 seconds")
	assert.Equal(t, was.GetParametersJson(), is.GetParametersJson())
}

func TestExitCodeIsNoError(t *testing.T) {
	t.Parallel()
	made, err := bash.Kind().New(json.RawMessage(`{}`))
	require.NoError(t, err)
	sandbox := &tooltest.Sandbox{Answer: func(*sandboxv1.ExecSpec) (*sandboxv1.ExecResult, error) {
		return &sandboxv1.ExecResult{ExitCode: new(int32(3)), Stdout: []byte("out\n"), Stderr: []byte("err\n")}, nil
	}}
	result, err := made.Call(t.Context(), tooltest.NewCall(`{"command": "x"}`, sandbox))
	require.NoError(t, err)
	assert.Equal(t, tool.Text("err\n\nout\n"), result)
}

func TestView(t *testing.T) {
	t.Parallel()
	made, err := bash.Kind().New(json.RawMessage(`{}`))
	require.NoError(t, err)
	view := made.Definition().View
	for arguments, want := range map[string]string{
		`{"command": "  ls -la\n"}`:    "```bash\nls -la\n```\n",
		`{}`:                           "```bash\nbash\n```\n",
		`{"command": null}`:            "```bash\nbash\n```\n",
		`{"command": false}`:           "```bash\nbash\n```\n",
		`{"command": []}`:              "```bash\nbash\n```\n",
		`{"command": " \n "}`:          "```bash\n\n```\n",
		`{"command": 5}`:               "```bash\n5\n```\n",
		"{\"command\": \"echo ```\"}":  "````bash\necho ```\n````\n",
		`{"command": ["a", {"b": 1}]}`: "```bash\n[\"a\",{\"b\":1}]\n```\n",
	} {
		content := view(json.RawMessage(arguments))
		assert.Equal(t, want, content.GetContent())
		assert.Equal(t, "bash", content.GetTitle())
		assert.Equal(t, toolv1.ViewFormat_VIEW_FORMAT_MARKDOWN, content.GetFormat())
	}
}
