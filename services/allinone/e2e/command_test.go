package e2e_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protojson"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/pkg/waittest"
)

// said is the result of a command.
type said struct {
	out, err string
	code     int
}

// run runs a command in this home to its end.
func (h *home) run(args ...string) said {
	h.t.Helper()
	return h.begin(args...).end()
}

// running is a running command.
type running struct {
	t        *testing.T
	cmd      *exec.Cmd
	out, err stream
	ended    chan struct{}
}

// stream is the output of a command, which may be read while the command runs.
type stream struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (s *stream) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

// String is the output so far.
func (s *stream) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// begin starts a command on this home's data directory, or as a client of its five processes. The test's end kills it.
func (h *home) begin(args ...string) *running {
	h.t.Helper()
	args = append(args, "--data-dir", h.dir)
	if h.form != single {
		args = append([]string{"--server", h.address(), "--token-file", h.tokenFile}, args...)
	}
	r := &running{t: h.t, cmd: h.command(args...), ended: make(chan struct{})}
	r.cmd.Stdout, r.cmd.Stderr = &r.out, &r.err
	require.NoError(h.t, r.cmd.Start())
	h.started++
	go func() {
		_ = r.cmd.Wait() // Its exit code is read from the process.
		close(r.ended)
	}()
	h.t.Cleanup(func() {
		_ = r.cmd.Process.Kill()
		waittest.For(h.t, r.ended, "the end of a command that was killed")
	})
	return r
}

func (r *running) over() bool {
	select {
	case <-r.ended:
		return true
	default:
		return false
	}
}

// end waits for a command to end.
func (r *running) end() said {
	r.t.Helper()
	select {
	case <-r.ended:
	case <-time.After(patience):
		_ = r.cmd.Process.Kill()
		waittest.For(r.t, r.ended, "the end of a command that hung and was killed")
		require.Failf(r.t, "a command hangs", "%v\n%s\n%s", r.cmd.Args, r.out.String(), r.err.String())
	}
	return said{out: r.out.String(), err: r.err.String(), code: r.cmd.ProcessState.ExitCode()}
}

// attach waits until a command with a server of its own has announced its address, and returns a client of it.
func (h *home) attach(r *running) *client {
	h.t.Helper()
	var address string
	eventually(h.t, func() bool {
		held, ok := holderOf(h.dir)
		address = held.Address
		return r.over() || ok && held.PID == r.cmd.Process.Pid && held.Address != ""
	}, "the command serves")
	require.False(h.t, r.over(), "the command ended: %v", &r.err)
	return h.connectTo(address)
}

// write puts a file beside the data directory and returns its path.
func (h *home) write(name, content string) string {
	h.t.Helper()
	path := filepath.Join(filepath.Dir(h.dir), name)
	require.NoError(h.t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

// evalOf reads the evaluation that `eval run --json` ends with.
func evalOf(t *testing.T, s said) *agentv1.Eval {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(s.out), "\n")
	last := parsed(t, lines[len(lines)-1])
	require.Contains(t, last, "eval", "the last line is the evaluation\n%s", s.err)
	eval := &agentv1.Eval{}
	require.NoError(t, protojson.Unmarshal([]byte(text(t, last["eval"])), eval))
	return eval
}

const slowTask = `
task: slow
dataset:
  - {id: quick, input: Q, target: done}
  - {id: slow, input: Q, target: done}
solver: generate
scorer: match
max_samples: 1
model:
  name: mockllm/model
  args:
    outputs:
      - {sample: quick, output: done}
      - {sample: slow, output: {text: done, delay_s: 3}}
`

// The second command on a data directory becomes a client of the first one's server.
func TestTwoCommandsShareOneServer(t *testing.T) {
	t.Parallel()
	h := newHome(t, &shipped, single)
	first := h.begin("eval", "run", "--json", h.write("slow.yaml", strings.Replace(slowTask, "delay_s: 3", "delay_s: 600", 1)))
	c := h.attach(first)
	eventually(t, func() bool {
		list, err := c.evals.ListEvals(within(t), &agentv1.ListEvalsRequest{Parent: project})
		require.NoError(t, err)
		return len(list.GetEvals()) == 1
	}, "the evaluation of the first command is made")

	held, ok := holderOf(h.dir)
	require.True(t, ok)
	list := h.run("eval", "list")
	assert.Zero(t, list.code, list.err)
	assert.Contains(t, list.out, "slow")
	assert.Contains(t, list.err, held.Address, "the second says whose client it is")

	second := h.run("eval", "run", "--json", h.write("quick.yaml", strings.Replace(slowTask, "delay_s: 3", "delay_s: 0", 1)))
	require.Zero(t, second.code, second.err)
	assert.Equal(t, agentv1.EvalState_EVAL_STATE_SUCCEEDED, evalOf(t, second).GetState())
	again, _ := holderOf(h.dir)
	assert.Equal(t, held, again, "the first one serves on")

	evals, err := c.evals.ListEvals(within(t), &agentv1.ListEvalsRequest{Parent: project, States: []agentv1.EvalState{agentv1.EvalState_EVAL_STATE_RUNNING}})
	require.NoError(t, err)
	require.Len(t, evals.GetEvals(), 1)
	id := filepath.Base(evals.GetEvals()[0].GetName())
	c.leave()
	cancelled := h.run("eval", "cancel", id)
	assert.Zero(t, cancelled.code, cancelled.err)
	end := first.end()
	assert.Equal(t, 1, end.code, "an evaluation that somebody cancelled is no success\n%s", end.err)
	assert.Equal(t, agentv1.EvalState_EVAL_STATE_CANCELLED, evalOf(t, end).GetState())
}

// A command that follows its evaluation at a server outlives that server's death, and shows every event once.
func TestCommandOutlivesItsServer(t *testing.T) {
	t.Parallel()
	inEachForm(t, func(t *testing.T, f form) {
		h := newHome(t, &shipped, f)
		c := h.serve()
		guest := h.begin("eval", "run", "--json", h.write("slow.yaml", slowTask))
		name := c.onlyEval(t)
		c.until(t, name, func(e *agentv1.Event) bool { return e.GetSampleFinished() != nil })
		h.kill()
		h.serve()
		end := guest.end()
		require.Zero(t, end.code, end.err)
		assert.Equal(t, agentv1.EvalState_EVAL_STATE_SUCCEEDED, evalOf(t, end).GetState())
		next := 1
		for line := range strings.Lines(end.out) {
			if seq, ok := at(parsed(t, line), "event", "seq").(string); ok {
				assert.Equal(t, strconv.Itoa(next), seq, "each event once, in order")
				next++
			}
		}
		assert.Greater(t, next, 6)
	})
}

// An interrupt ends the command's own evaluation and prints how to resume it; a later command resumes it, and finished
// samples stay finished.
func TestInterruptAndResume(t *testing.T) {
	t.Parallel()
	h, release := holding(t, "slow")
	first := h.begin("eval", "run", h.write("slow.yaml", heldTask))
	c := h.attach(first)
	name := c.onlyEval(t)
	c.until(t, name, func(e *agentv1.Event) bool { return e.GetSampleFinished() != nil })
	c.leave()
	require.NoError(t, first.cmd.Process.Signal(syscall.SIGINT))
	end := first.end()
	release["slow"]()
	assert.Equal(t, 130, end.code, end.err)
	assert.Contains(t, end.out+end.err, "evalfleet eval resume "+filepath.Base(name))

	resumed := h.run("eval", "resume", "--json", filepath.Base(name))
	require.Zero(t, resumed.code, resumed.err)
	eval := evalOf(t, resumed)
	assert.Equal(t, name, eval.GetName())
	assert.Equal(t, agentv1.EvalState_EVAL_STATE_SUCCEEDED, eval.GetState())
	assert.InDelta(t, 1, metric(t, eval, "match", "accuracy"), 0)
	samples := h.serve().samples(t, name)
	assert.EqualValues(t, 1, samples[0].GetAttempts(), "what was done stays")
}

// A server that stops in order leaves its work to the next one.
func TestStopAndServeAgain(t *testing.T) {
	t.Parallel()
	inEachForm(t, func(t *testing.T, f form) {
		h := newHome(t, &shipped, f)
		c := h.serve()
		spec := asked(2, scripted(t, object{"sample": "question-1", "output": "yes"}, object{"sample": "question-2", "output": object{"text": "yes", "delay_s": 1}}))
		spec.MaxSamples = new(int32(1))
		name := c.create(t, spec)
		c.until(t, name, func(e *agentv1.Event) bool { return e.GetSampleFinished() != nil })
		h.stop()
		eval := h.serve().await(t, name)
		assert.Equal(t, agentv1.EvalState_EVAL_STATE_SUCCEEDED, eval.GetState())
		assert.InDelta(t, 1, metric(t, eval, "match", "accuracy"), 0)
	})
}
