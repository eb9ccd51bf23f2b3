package python_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/services/toolexec/internal/builtin/python"
	"github.com/evalfleet/evalfleet/services/toolexec/internal/tool/tooltest"
)

func TestSuite(t *testing.T) {
	t.Parallel()
	tooltest.Run(t, tooltest.Harness{
		Kind:      python.Kind(),
		Options:   []string{`{"timeout": 10, "user": "root", "sandbox": "db"}`},
		Refused:   []string{`{"background": true}`, `{"user": 0}`},
		Arguments: []string{`{"code": "print(1)"}`, `{"code": ""}`},
		Sandbox:   func() *tooltest.Sandbox { return &tooltest.Sandbox{} },
	})
}

func TestProgramOfACall(t *testing.T) {
	t.Parallel()
	made, err := python.Kind().New(json.RawMessage(`{"timeout": 1.5, "user": "alice", "sandbox": "db"}`))
	require.NoError(t, err)
	sandbox := &tooltest.Sandbox{}
	_, err = made.Call(t.Context(), tooltest.NewCall(`{"code": "print(1)"}`, sandbox))
	require.NoError(t, err)

	require.Len(t, sandbox.Specs(), 1)
	spec := sandbox.Specs()[0]
	assert.Equal(t, "alice", spec.GetUser())
	assert.InDelta(t, 1.5, spec.GetTimeout().AsDuration().Seconds(), 0)
	assert.Equal(t, []string{"db"}, sandbox.Environments())
}

func TestTheProgramIsStandardInput(t *testing.T) {
	t.Parallel()
	made, err := python.Kind().New(json.RawMessage(`{}`))
	require.NoError(t, err)
	sandbox := &tooltest.Sandbox{}
	_, err = made.Call(t.Context(), tooltest.NewCall(`{"code": "print('é')\n"}`, sandbox))
	require.NoError(t, err)

	spec := sandbox.Specs()[0]
	assert.Equal(t, []string{"bash", "--login", "-c", "python3 -"}, spec.GetArgv())
	assert.Equal(t, "print('é')\n", string(spec.GetStdin()))
	assert.Nil(t, spec.GetTimeout())
}
