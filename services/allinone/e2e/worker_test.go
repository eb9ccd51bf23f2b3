package e2e_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/pkg/sqlite"
	"github.com/evalfleet/evalfleet/pkg/waittest"
)

// example is a worker of the folder examples, which serves the tool `square` and the scorer `close_enough`.
type example struct {
	name string
	// needs is the environment that make setup installs for it.
	needs string
	// command is how it is started in a checkout.
	command func(root string) (argv, env []string)
}

var (
	inPython = example{"python", ".tools/venv-python/requirements.stamp", func(root string) ([]string, []string) {
		return []string{filepath.Join(root, ".tools/venv-python/bin/python"), filepath.Join(root, "examples/worker-python/worker.py")},
			[]string{"PYTHONPATH=" + filepath.Join(root, "clients/python/src"), "PYTHONDONTWRITEBYTECODE=1"}
	}}
	inNode = example{"node", ".tools/worker-node/package-lock.stamp", func(root string) ([]string, []string) {
		return []string{"node", filepath.Join(root, "examples/worker-node/worker.js")}, []string{"NODE_PATH=" + filepath.Join(root, ".tools/worker-node/node_modules")}
	}}
)

// helper is a running example worker of a home.
type helper struct {
	h       *home
	cmd     *exec.Cmd
	exited  chan struct{}
	mu      sync.Mutex
	lines   []string
	waiting chan struct{} // closed by the next line
}

// begin starts a worker and waits until it is registered.
func (e example) begin(h *home) *helper {
	h.t.Helper()
	root, err := filepath.Abs(repository)
	require.NoError(h.t, err)
	if !exists(filepath.Join(root, e.needs)) {
		h.t.Skipf("what the worker in %s needs is not there; make setup makes it", e.name)
	}
	argv, env := e.command(root)
	w := &helper{h: h, cmd: exec.Command(argv[0], argv[1:]...), exited: make(chan struct{}), waiting: make(chan struct{})}
	w.cmd.Dir = filepath.Dir(h.dir)
	w.cmd.Env = append(env, "PATH="+os.Getenv("PATH"), "HOME="+w.cmd.Dir, "EVALFLEET_ADDRESS="+h.address(), "EVALFLEET_SERVER="+h.address(), "EVALFLEET_TOKEN="+h.token())
	w.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := w.cmd.StdoutPipe()
	require.NoError(h.t, err)
	w.cmd.Stderr = w.cmd.Stdout
	require.NoError(h.t, w.cmd.Start())
	go func() {
		defer close(w.exited)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			w.hear(lines.Text())
		}
		_ = w.cmd.Wait() // It is killed in the end.
	}()
	h.t.Cleanup(w.kill)
	w.says("registered", 1)
	return w
}

func (w *helper) hear(line string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lines = append(w.lines, line)
	close(w.waiting)
	w.waiting = make(chan struct{})
}

// says waits until the worker has printed that many lines with the prefix.
func (w *helper) says(prefix string, times int) {
	w.h.t.Helper()
	late := time.NewTimer(patience)
	defer late.Stop()
	for {
		w.mu.Lock()
		lines, more := w.lines, w.waiting
		w.mu.Unlock()
		n := 0
		for _, line := range lines {
			if strings.HasPrefix(line, prefix) {
				n++
			}
		}
		if n >= times {
			return
		}
		select {
		case <-more:
		case <-w.exited:
			require.Failf(w.h.t, "the worker has ended", "%s", strings.Join(lines, "\n"))
		case <-late.C:
			require.Failf(w.h.t, "the worker does not say "+prefix, "%s", strings.Join(lines, "\n"))
		}
	}
}

// kill kills the worker, as a power cut does.
func (w *helper) kill() {
	_ = w.cmd.Process.Kill()
	waittest.For(w.h.t, w.exited, "the end of a worker that was killed")
}

// squares runs the examples' task while disturb runs, and returns its table.
func squares(t *testing.T, h *home, disturb func(c *client)) verdicts {
	t.Helper()
	command := h.begin("eval", "run", "--json", "--server", h.address(), "--token-file", h.tokenFile, filepath.Join("examples", "worker-python", "task.yaml"))
	disturb(h.connect())
	end := command.end()
	require.Zero(t, end.code, "%s\n%s", end.err, end.out)
	c := h.connect()
	eval := evalOf(t, end)
	got := verdictsOf(t, c, eval)
	for i, s := range c.samples(t, eval.GetName()) {
		events := c.journal(t, s.GetRun())
		checkJournal(t, events)
		for _, score := range s.GetScores() {
			got.Samples[i] += fmt.Sprint(score.GetScore().GetValue().GetNumber())
		}
		got.Samples[i] += ", the model saw " + strings.Join(toolTexts(events), " ")
	}
	return got
}

// calmSquares is the table of the examples' task without a disturbance.
var calmSquares struct {
	once sync.Once
	verdicts
}

func undisturbedSquares(t *testing.T) verdicts {
	t.Helper()
	calmSquares.once.Do(func() {
		t.Run("undisturbed", func(t *testing.T) {
			h := newHome(t, &shipped, single)
			h.serve()
			inPython.begin(h)
			calmSquares.verdicts = squares(t, h, func(*client) {})
		})
		assert.Equal(t, "EVAL_STATE_SUCCEEDED", calmSquares.State)
		assert.Len(t, calmSquares.Samples, 6)
		assert.InDelta(t, 2./3, calmSquares.Metrics["close_enough/accuracy"], 1e-9, "%v", calmSquares.Samples)
	})
	require.NotEmpty(t, calmSquares.Samples, "the undisturbed run has no results")
	return calmSquares.verdicts
}

// A worker in Python serves a tool and a scorer. It is killed during a call and restarted, and the results do not show
// it.
func TestKillAWorker(t *testing.T) {
	want := undisturbedSquares(t)
	inEachForm(t, func(t *testing.T, f form) {
		h := newHome(t, &shipped, f)
		h.serve()
		w := inPython.begin(h)
		got := squares(t, h, func(*client) {
			for calls := range 3 {
				w.says("call ", 1+calls)
				w.kill()
				w = inPython.begin(h)
			}
		})
		assert.Equal(t, want, got)
	})
}

// The servers are killed while a worker has a call. It connects to the next ones, and the results do not show it.
func TestKillServersDuringAWorkersCall(t *testing.T) {
	want := undisturbedSquares(t)
	t.Run("single", func(t *testing.T) {
		t.Parallel()
		h := newHome(t, &shipped, single)
		h.serve()
		w := inPython.begin(h)
		assert.Equal(t, want, squares(t, h, func(*client) {
			w.says("call ", 2)
			h.kill()
			h.serve()
			w.says("registered", 2)
		}))
	})
	t.Run("five", func(t *testing.T) {
		t.Parallel()
		h := newHome(t, &shipped, five)
		h.serve()
		w := inPython.begin(h)
		assert.Equal(t, want, squares(t, h, func(*client) {
			for i, victim := range []string{"toolexec", "gateway", "agentorch"} {
				w.says("call ", 1+2*i)
				h.kill(victim)
				h.serve()
				w.says("registered", 2+i)
			}
		}))
	})
}

// A worker in another language serves the same.
func TestAWorkerInNode(t *testing.T) {
	want := undisturbedSquares(t)
	t.Parallel()
	h := newHome(t, &shipped, single)
	h.serve()
	w := inNode.begin(h)
	assert.Equal(t, want, squares(t, h, func(*client) {
		w.says("call ", 1)
		w.kill()
		w = inNode.begin(h)
	}))
}

// A call that is larger than a frame reaches a worker: it reads the payload with BlobService.
func TestAWorkersCallIsLargerThanAFrame(t *testing.T) {
	t.Parallel()
	for _, worker := range []example{inPython, inNode} {
		t.Run(worker.name, func(t *testing.T) {
			t.Parallel()
			inEachForm(t, func(t *testing.T, f form) {
				h := newHome(t, &shipped, f)
				h.serve()
				worker.begin(h)
				h.write("large.jsonl", text(t, object{"input": strings.Repeat("much ", 1_000_000), "target": "12"})+"\n")
				task := h.write("large.yaml", "dataset: large.jsonl\nscorer: close_enough\nmodel: {name: mockllm/model, args: {outputs: [\"12.25\"]}}\nsolver: generate\n")
				ran := h.run("eval", "run", task, "--json")
				require.Equal(t, 0, ran.code, ran.err)
				assert.InDelta(t, 1, metric(t, evalOf(t, ran), "close_enough", "accuracy"), 1e-9)
			})
		})
	}
}

// A worker that cannot store its results reports it, so that its callers are not left without an answer.
func TestAWorkerThatCannotKeepResults(t *testing.T) {
	t.Parallel()
	h := newHome(t, &shipped, single)
	h.serve()
	results, err := sqlite.Open(t.Context(), filepath.Join(filepath.Dir(h.dir), "results.db"), sqlite.Options{})
	require.NoError(t, err)
	require.NoError(t, results.Write(t.Context(), func(tx *sqlite.Tx) error {
		_, err := tx.Exec(`CREATE TABLE results (key PRIMARY KEY, result CHECK (result = 'nothing'))`)
		return err
	}))
	require.NoError(t, results.Close())
	inPython.begin(h)
	end := h.begin("eval", "run", "--json", "--server", h.address(), "--token-file", h.tokenFile, filepath.Join("examples", "worker-python", "task.yaml")).end()
	e := evalOf(t, end)
	assert.Equal(t, agentv1.EvalState_EVAL_STATE_FAILED, e.GetState())
	assert.Contains(t, e.GetError().GetMessage(), "CHECK constraint failed")
}

// While no worker is connected a run waits, and reports the reason.
func TestWaitingForAWorker(t *testing.T) {
	t.Parallel()
	h := newHome(t, &shipped, single)
	h.serve()
	w := inPython.begin(h)
	got := squares(t, h, func(c *client) {
		w.says("call ", 1)
		w.kill()
		eventually(t, func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			list, err := c.runs.ListRuns(ctx, &agentv1.ListRunsRequest{Parent: project})
			require.NoError(t, err)
			for _, r := range list.GetRuns() {
				if r.GetWait().GetReason() == agentv1.WaitReason_WAIT_REASON_WORKER {
					return assert.Equal(t, "waiting for a worker of tool square", r.GetWait().GetMessage())
				}
			}
			return false
		}, "a run says what it waits for")
		inPython.begin(h)
	})
	assert.Equal(t, "EVAL_STATE_SUCCEEDED", got.State)
}
