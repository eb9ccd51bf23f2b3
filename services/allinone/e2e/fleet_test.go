package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
)

// Each of five processes is killed in turn during an evaluation, and restarted at its address. The results do not show
// it.
func TestKillEachServiceOfFive(t *testing.T) {
	want := undisturbed(t)
	t.Parallel()
	h, callLog := countedHome(t, &shipped, five)
	c := h.serve()
	spec := counted(t)
	spec.MaxSamples = new(int32(1)) // So that it lasts.
	name := c.create(t, spec)
	for i, victim := range five.services() {
		require.False(t, c.ended(t, name, i+1), "the evaluation ended before %s was killed", victim)
		was := h.processes[victim].cmd.Process.Pid
		h.kill(victim)
		c = h.serve()
		assert.NotEqual(t, was, h.processes[victim].cmd.Process.Pid)
	}
	eval := c.await(t, name)
	assert.Equal(t, want, verdictsOf(t, c, eval))
	checkCounted(t, c, eval, callLog)
}

// The single binary can be each of the five.
func TestServeTargets(t *testing.T) {
	want := undisturbed(t)
	t.Parallel()
	h, callLog := countedHome(t, &shipped, targets)
	c := h.serve()
	eval := c.await(t, c.create(t, counted(t)))
	assert.Equal(t, want, verdictsOf(t, c, eval))
	checkCounted(t, c, eval, callLog)
	h.stop()
}

// While sandboxd is down, an evaluation that needs it reports that; when it is back, the evaluation continues by
// itself.
func TestAnEvaluationSaysWhoIsAway(t *testing.T) {
	t.Parallel()
	h := newHome(t, &shipped, five)
	c := h.serve()
	name := c.create(t, &agentv1.EvalSpec{
		Task:    "away",
		Dataset: questions(1),
		Steps:   react("bash"),
		Models: []*agentv1.ModelRef{scripted(t, object{"min_turn": 1, "outputs": []object{
			{"tool_calls": []object{{"function": "bash", "arguments": object{"command": "touch begun; until [ -e go ]; do sleep 0.05; done"}}}},
			{"tool_calls": []object{{"function": "submit", "arguments": object{"answer": "done"}}}},
		}})},
		Sandboxes: map[string]*sandboxv1.SandboxSpec{"default": {Driver: "local"}},
		Scorers:   []*agentv1.ScorerRef{{Name: "exec", ParamsJson: text(t, object{"language": "bash", "cwd": ".", "program": "[ -e begun ]"})}},
	})
	box := c.onlySandbox(t)
	eventually(t, func() bool { return c.has(t, box, "begun") }, "the command has begun")
	h.kill("sandboxd")
	c.untilWatched(t, name, func(r *agentv1.WatchEvalResponse) bool { return len(r.GetProgress().GetProgress().GetWaits()) > 0 })
	shown := h.run("eval", "show", filepath.Base(name), "--server", h.address(), "--token-file", h.tokenFile)
	assert.Regexp(t, `1 waiting since \d\d:\d\d:\d\d: sandboxd does not answer`, shown.out)

	c = h.serve()
	_, err := c.sandboxes.WriteFile(within(t), &sandboxv1.WriteFileRequest{Sandbox: box, Path: "go"})
	require.NoError(t, err)
	eval := c.await(t, name)
	assert.Equal(t, agentv1.EvalState_EVAL_STATE_SUCCEEDED, eval.GetState(), "%v", eval.GetError())
	assert.InDelta(t, 1, metric(t, eval, "exec", "accuracy"), 0)
	assert.Empty(t, eval.GetProgress().GetWaits())
}

// A server that starts right after the last one was killed still finds it alive: the kernel takes its time. The new one
// waits for its end, and takes over.
func TestStartWhileTheLastOneDies(t *testing.T) {
	t.Parallel()
	inEachForm(t, func(t *testing.T, f form) {
		h := newHome(t, &shipped, f)
		h.serve()
		victim := f.services()[0]
		dying := h.processes[victim]
		require.NoError(t, dying.cmd.Process.Signal(syscall.SIGSTOP)) // It has its lock and its port, and answers no call.
		eventually(t, func() bool { return stopped(t, dying) }, "no thread of the server runs")
		h.begun(victim)
		next := h.processes[victim]
		eventually(t, func() bool { return next.over() || calls(next) }, "the next server asks the one that has the lock")
		require.NoError(t, dying.cmd.Process.Kill())
		dying.await(t)
		h.awaitServing(victim)
		assert.Equal(t, next, h.processes[victim], "it was not started again")
		h.stop()
	})
}

// stopped reports whether every thread of a process is stopped: on a busy machine they go on for a while after SIGSTOP.
func stopped(t *testing.T, p *process) bool {
	t.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", p.cmd.Process.Pid))
	require.NoError(t, err)
	return len(threads) > 0 && !slices.ContainsFunc(threads, func(thread string) bool {
		status, err := os.ReadFile(thread)
		return err == nil && !strings.Contains(string(status), "\nState:\tT ")
	})
}

// calls reports whether a process that accepts no calls yet has a socket.
func calls(p *process) bool {
	open, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", p.cmd.Process.Pid))
	return slices.ContainsFunc(open, func(fd string) bool {
		at, err := os.Readlink(fd)
		return err == nil && strings.HasPrefix(at, "socket:")
	})
}
