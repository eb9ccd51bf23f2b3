package e2e_test

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
)

// A sandbox is lost while the server is down. The model is told and continues; the evaluation reports it too, and a
// scorer that needs the sandbox fails the sample.
func TestASandboxIsLostWhileTheServerIsAway(t *testing.T) {
	t.Parallel()
	for driver, lose := range map[string]func(t *testing.T, h *home, sandbox string){
		"local":  killBox,
		"docker": removeContainer,
	} {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			var env []string
			if driver == "docker" {
				env = docker.env(t)
			}
			h := newHome(t, &shipped, single, env...)
			c := h.serve()
			spec := func(scorer *agentv1.ScorerRef) *agentv1.EvalSpec {
				return &agentv1.EvalSpec{
					Task:    "lost",
					Dataset: questions(1),
					Steps:   react("bash"),
					Models: []*agentv1.ModelRef{scripted(t, object{"min_turn": 1, "outputs": []object{
						{"tool_calls": []object{{"function": "bash", "arguments": object{"command": "touch begun; sleep 1000"}}}},
						{"tool_calls": []object{{"function": "submit", "arguments": object{"answer": "done"}}}},
					}})},
					Sandboxes: map[string]*sandboxv1.SandboxSpec{"default": {Driver: driver}},
					Scorers:   []*agentv1.ScorerRef{scorer},
				}
			}
			gone := func(name string) *agentv1.Eval {
				box := c.onlySandbox(t)
				eventually(t, func() bool { return c.has(t, box, "begun") }, "the command has begun")
				h.kill()
				lose(t, h, box)
				c = h.serve()
				return c.await(t, name)
			}

			eval := gone(c.create(t, spec(&agentv1.ScorerRef{Name: "includes"})))
			assert.Equal(t, agentv1.EvalState_EVAL_STATE_SUCCEEDED, eval.GetState(), "%v", eval.GetError())
			assert.EqualValues(t, 1, eval.GetProgress().GetSandboxFaults())
			sample := c.samples(t, eval.GetName())[0]
			assert.Contains(t, sample.GetSandboxFault(), "is lost")
			var told []toolv1.ToolErrorType
			for _, e := range c.journal(t, sample.GetRun()) {
				if o := e.GetToolOutcome(); o.GetFunction() == "bash" {
					told = append(told, o.GetErrorType())
				}
			}
			assert.Equal(t, []toolv1.ToolErrorType{toolv1.ToolErrorType_TOOL_ERROR_TYPE_SANDBOX_UNAVAILABLE}, told, "the model is told")
			shown := h.run("eval", "show", filepath.Base(eval.GetName()))
			assert.Contains(t, shown.out, "1 without a sandbox")
			assert.Regexp(t, `1 went on without a sandbox, such as \S+: .* is lost`, shown.out)
			assert.Contains(t, h.run("logs", filepath.Base(eval.GetName())).out, "no sandbox: ")

			eval = gone(c.create(t, spec(&agentv1.ScorerRef{Name: "exec", ParamsJson: text(t, object{"language": "bash", "program": "true"})})))
			assert.EqualValues(t, 1, eval.GetProgress().GetFailed(), "a scorer that cannot look does not judge")
			assert.Contains(t, h.run("eval", "show", filepath.Base(eval.GetName())).out, "1 failed, such as ")
		})
	}
}

// killBox ends the first process of a local sandbox, and with it all others.
func killBox(t *testing.T, h *home, sandbox string) {
	t.Helper()
	record, err := os.ReadFile(filepath.Join(h.dir, "sandboxes", "local", filepath.Base(sandbox), "box.json"))
	require.NoError(t, err)
	var box struct{ PID int }
	require.NoError(t, json.Unmarshal(record, &box))
	require.NoError(t, syscall.Kill(box.PID, syscall.SIGKILL))
}

// removeContainer removes the container of a sandbox, as `docker rm -f` does.
func removeContainer(t *testing.T, _ *home, sandbox string) {
	t.Helper()
	resp := docker.ask(t, http.MethodDelete, "/containers/evalfleet-"+filepath.Base(sandbox)+"?force=1")
	defer resp.Body.Close()
	require.Equal(t, http.StatusNoContent, resp.StatusCode)
}
