package e2e_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/effect"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/waittest"
)

// calm is the table of the counted evaluation without a disturbance.
var calm struct {
	once sync.Once
	verdicts
}

// undisturbed runs the counted evaluation once and returns its table.
func undisturbed(t *testing.T) verdicts {
	t.Helper()
	calm.once.Do(func() {
		t.Run("undisturbed", func(t *testing.T) {
			h, callLog := countedHome(t, &shipped, single)
			c := h.serve()
			eval := c.await(t, c.create(t, counted(t)))
			checkCounted(t, c, eval, callLog)
			calm.verdicts = verdictsOf(t, c, eval)
			for slot, calls := range callsOf(t, callLog) {
				assert.Equal(t, 1, calls, slot)
			}
		})
		slots := float64(countedSamples * countedEpochs)
		assert.Equal(t, "EVAL_STATE_SUCCEEDED", calm.State, "%v", calm.Samples)
		assert.Len(t, calm.Samples, int(slots))
		for scorer, accuracy := range map[string]float64{"exec": 1, "exec1": 1, "includes": 2. / 3} {
			assert.InDelta(t, accuracy, calm.Metrics[scorer+"/accuracy"], 1e-9, "%s: %v", scorer, calm.Samples)
		}
	})
	require.NotEmpty(t, calm.Samples, "the undisturbed run has no results")
	return calm.verdicts
}

// boundaries are the positions in a step at which a crash is interesting, by the names in the code. Those with a number
// are passed that many times before. If the crash comes between the claim of a model call and its stored answer, that
// call must be reissued, and journaled so.
var boundaries = []struct {
	place   string
	reissue bool
}{
	{place: "agentorch/after-sample-run=2"},          // a sample's run is created, and the evaluation has not recorded it
	{place: "agentorch/after-intent"},                // an intent is journaled and no owner has received it
	{place: "agentorch/after-intent=9"},              // the same amid the work of several samples
	{place: "sandboxd/after-create=2"},               // a sandbox exists and is not recorded
	{place: "modelgw/after-claim", reissue: true},    // a call is claimed and not made
	{place: "modelgw/after-answer=4", reissue: true}, // the model has answered and the answer is not stored
	{place: "modelgw/after-result=6"},                // the answer is stored and not returned
	{place: "toolexec/after-claim=2"},                // a tool call is claimed and not begun
	{place: "sandboxd/after-exec=4"},                 // a command has run, and its tool call does not know
	{place: "toolexec/after-result=5"},               // the tool's result is stored and not returned
	{place: "agentorch/after-result=12"},             // an outcome has arrived and is not journaled
	{place: "agentorch/during-scoring=3"},            // a scorer judges
}

// The server is killed at each boundary of a step, by name, and restarted with the same data directory. The evaluation
// continues by itself, and the results do not show it.
func TestKillAtEveryBoundary(t *testing.T) {
	want := undisturbed(t)
	inEachForm(t, func(t *testing.T, f form) {
		for _, b := range boundaries {
			t.Run(b.place, func(t *testing.T) {
				t.Parallel()
				once := filepath.Join(t.TempDir(), "once")
				h, callLog := countedHome(t, &breakable, f, "EVALFLEET_FAILPOINT="+b.place, "EVALFLEET_FAILPOINT_ONCE="+once)
				c := h.serve()
				spec := counted(t)
				name, err := c.ask(t, spec)
				h.died()
				require.FileExists(t, once, "it was the failpoint that ended the server")
				c = h.serve()
				if err != nil { // The answer was lost with the server. The same request is the same evaluation.
					require.Equal(t, codes.Unavailable, rpcerr.Code(err), "%v", err)
					name, err = c.ask(t, spec)
					require.NoError(t, err)
				}
				eval := c.await(t, name)
				assert.Equal(t, want, verdictsOf(t, c, eval))
				reissued := checkCounted(t, c, eval, callLog)
				if b.reissue {
					assert.Positive(t, reissued, "a call was in flight")
				}
				list, err := c.evals.ListEvals(within(t), &agentv1.ListEvalsRequest{Parent: project})
				require.NoError(t, err)
				assert.Len(t, list.GetEvals(), 1)
			})
		}
	})
}

// The server is killed between the body of a large value and the event that names it: of the evaluation, of a run, and
// of each answer. The next server puts the value again, and nothing is lost or happens twice.
func TestKillBetweenAValueAndItsEvent(t *testing.T) {
	t.Parallel()
	answers := []string{strings.Repeat("first ", 100_000), strings.Repeat("last ", 100_000)}
	inEachForm(t, func(t *testing.T, f form) {
		for n := range 4 {
			place := fmt.Sprintf("agentorch/after-values=%d", n+1)
			t.Run(place, func(t *testing.T) {
				t.Parallel()
				once := filepath.Join(t.TempDir(), "once")
				h, callLog := countedHome(t, &breakable, f, "EVALFLEET_FAILPOINT="+place, "EVALFLEET_FAILPOINT_ONCE="+once)
				c := h.serve()
				spec := &agentv1.EvalSpec{
					Task: "wordy", Dataset: questions(1), Steps: react("bash"), Sandboxes: map[string]*sandboxv1.SandboxSpec{"default": {Driver: "local"}},
					Models: []*agentv1.ModelRef{scripted(t, object{"min_turn": 1, "outputs": []object{
						{"text": answers[0], "tool_calls": []object{{"function": "bash", "arguments": object{"command": "echo a >> trace"}}}},
						{"text": answers[1], "tool_calls": []object{{"function": "submit", "arguments": object{"answer": "done"}}}},
					}})},
					Scorers: []*agentv1.ScorerRef{{Name: "exec", ParamsJson: text(t, object{"language": "bash", "cwd": ".", "program": `[ "$(cat trace)" = a ]`})}},
				}
				name, err := c.ask(t, spec)
				h.died()
				require.FileExists(t, once, "it was the failpoint that ended the server")
				c = h.serve()
				if err != nil {
					require.Equal(t, codes.Unavailable, rpcerr.Code(err), "%v", err)
					name, err = c.ask(t, spec)
					require.NoError(t, err)
				}
				eval := c.await(t, name)
				assert.Equal(t, agentv1.EvalState_EVAL_STATE_SUCCEEDED, eval.GetState(), "%v", eval.GetError())
				assert.InDelta(t, 1, metric(t, eval, "exec", "accuracy"), 0, "the command ran once")
				events := c.journal(t, c.samples(t, name)[0].GetRun())
				checkJournal(t, events)
				var said []string
				for _, o := range modelOutcomes(events) {
					said = append(said, chat.Text(chat.FirstMessage(o.GetContent().GetOutput())))
				}
				assert.Equal(t, answers, said)
				assert.Equal(t, map[string]int{"question-1 epoch 1 turn 1": 1, "question-1 epoch 1 turn 2": 1}, callsOf(t, callLog))
			})
		}
	})
}

// ask creates an evaluation with a key, so that the request can be repeated.
func (c *client) ask(t *testing.T, spec *agentv1.EvalSpec) (string, error) {
	t.Helper()
	eval, err := c.evals.CreateEval(within(t), &agentv1.CreateEvalRequest{Parent: project, Spec: spec, RequestId: "the only one"})
	return eval.GetName(), err
}

// A command runs on in its sandbox while the server is away. The next server attaches to it, and the command has run
// once.
func TestKillDuringExec(t *testing.T) {
	t.Parallel()
	inEachForm(t, func(t *testing.T, f form) {
		h := newHome(t, &shipped, f)
		c := h.serve()
		name := c.create(t, &agentv1.EvalSpec{
			Task:    "blocked",
			Dataset: questions(1),
			Steps:   react("bash"),
			Models: []*agentv1.ModelRef{scripted(t, object{"min_turn": 1, "outputs": []object{
				{"tool_calls": []object{{"function": "bash", "arguments": object{"command": "echo a >> trace; until [ -e go ]; do sleep 0.05; done; echo b >> trace; cat trace"}}}},
				{"tool_calls": []object{{"function": "submit", "arguments": object{"answer": "done"}}}},
			}})},
			Sandboxes: map[string]*sandboxv1.SandboxSpec{"default": {Driver: "local"}},
			Scorers:   []*agentv1.ScorerRef{{Name: "exec", ParamsJson: text(t, object{"language": "bash", "cwd": ".", "program": `[ "$(tr -d '\n' < trace)" = ab ]`})}},
		})
		box := c.onlySandbox(t)
		eventually(t, func() bool { return c.has(t, box, "trace") }, "the command has begun")

		h.kill()
		c = h.serve()
		assert.Equal(t, box, c.onlySandbox(t), "the sandbox was adopted")
		_, err := c.sandboxes.WriteFile(within(t), &sandboxv1.WriteFileRequest{Sandbox: box, Path: "go"})
		require.NoError(t, err)

		eval := c.await(t, name)
		assert.Equal(t, agentv1.EvalState_EVAL_STATE_SUCCEEDED, eval.GetState(), "%v", eval.GetError())
		assert.InDelta(t, 1, metric(t, eval, "exec", "accuracy"), 0, "the command ran once")
		events := c.journal(t, c.samples(t, name)[0].GetRun())
		checkJournal(t, events)
		assert.Contains(t, toolTexts(events), "a\nb\n", "what the command printed before and after the kill")
	})
}

// A model call is reissued five times when its process is killed, without an operator.
func TestFiveKillsInOneCall(t *testing.T) {
	t.Parallel()
	inEachForm(t, func(t *testing.T, f form) {
		h, callLog, spec := killedInOneCall(t, f, 5)
		c := h.serve()
		name, err := c.ask(t, spec)
		require.NoError(t, err)
		eval := c.await(t, name)
		assert.Equal(t, agentv1.EvalState_EVAL_STATE_SUCCEEDED, eval.GetState(), "%v", eval.GetError())
		sample := c.samples(t, name)[0]
		assert.EqualValues(t, 1, sample.GetAttempts())
		events := c.journal(t, sample.GetRun())
		checkJournal(t, events)
		outcomes := modelOutcomes(events)
		require.Len(t, outcomes, 1)
		assert.EqualValues(t, 5, outcomes[0].GetTiming().GetReissues())
		assert.EqualValues(t, 5, eval.GetProgress().GetLostModelCalls())
		assert.Contains(t, h.run("eval", "show", filepath.Base(name)).out, "5 model calls were lost")
		assert.Contains(t, h.run("run", "show", filepath.Base(sample.GetRun())).out, "5 model calls were lost")
		assert.Equal(t, map[string]int{"question-1 epoch 1 turn 1": 6}, callsOf(t, callLog))
	})
}

// After the sixth kill the outcome of the call is recorded as unknown, and its run waits for a decision, also when the
// server is started again.
func TestSixKillsInOneCallWaitForADecision(t *testing.T) {
	t.Parallel()
	inEachForm(t, func(t *testing.T, f form) {
		h, callLog, spec := killedInOneCall(t, f, 6)
		c := h.serve()
		name, err := c.ask(t, spec)
		require.NoError(t, err)
		run := c.decision(t, name)
		h.kill()
		c = h.serve()
		assert.Equal(t, run, c.decision(t, name))
		assert.Equal(t, map[string]int{"question-1 epoch 1 turn 1": 6}, callsOf(t, callLog), "nothing is asked before the decision")

		_, err = c.runs.ResumeRun(within(t), &agentv1.ResumeRunRequest{Name: run})
		require.NoError(t, err)
		eval := c.await(t, name)
		assert.Equal(t, agentv1.EvalState_EVAL_STATE_SUCCEEDED, eval.GetState(), "%v", eval.GetError())
		assert.EqualValues(t, 1, c.samples(t, name)[0].GetAttempts(), "the run went on")
		events := c.journal(t, run)
		checkJournal(t, events)
		outcomes := modelOutcomes(events)
		require.Len(t, outcomes, 2)
		assert.Equal(t, "EFFECT_INDETERMINATE", outcomes[0].GetError().GetReason())
		assert.EqualValues(t, 6, outcomes[0].GetTiming().GetAttempts())
		assert.EqualValues(t, 5, outcomes[0].GetTiming().GetReissues())
		assert.Nil(t, outcomes[1].GetError())
		assert.Equal(t, map[string]int{"question-1 epoch 1 turn 1": 7}, callsOf(t, callLog))
	})
}

// killedInOneCall creates an evaluation of one call, during which the server is killed that many times, and leaves it
// killed. The first kill may come before the answer that names the evaluation: a later server is asked for it again.
func killedInOneCall(t *testing.T, f form, kills int) (h *home, callLog string, spec *agentv1.EvalSpec) {
	h, callLog = countedHome(t, &breakable, f, "EVALFLEET_FAILPOINT=modelgw/after-answer")
	c := h.serve()
	spec = asked(1, scripted(t, object{"min_turn": 1, "output": "yes"}))
	_, _ = c.ask(t, spec)
	h.died()
	for range kills - 1 {
		h.launch()
		h.died()
	}
	h.env = h.env[1:]
	return h, callLog, spec
}

// decision waits until the only run of an evaluation waits for a decision, and returns its name.
func (c *client) decision(t *testing.T, eval string) (name string) {
	t.Helper()
	eventually(t, func() bool {
		r, err := c.runs.ListRuns(t.Context(), &agentv1.ListRunsRequest{Parent: project, Eval: eval})
		require.NoError(t, err)
		if len(r.GetRuns()) != 1 || r.GetRuns()[0].GetWait().GetReason() != agentv1.WaitReason_WAIT_REASON_DECISION {
			return false
		}
		name = r.GetRuns()[0].GetName()
		return true
	}, "the run waits for a decision")
	return name
}

func modelOutcomes(events []*agentv1.Event) (outcomes []*agentv1.ModelOutcome) {
	for _, e := range events {
		if e.GetModelOutcome() != nil {
			outcomes = append(outcomes, e.GetModelOutcome())
		}
	}
	return outcomes
}

// Graceful stops of a server during a long call count nothing, however many: the call is repeated, and the journal has
// one history of it.
func TestGracefulRestartsInOneCall(t *testing.T) {
	t.Parallel()
	h, callLog := countedHome(t, &shipped, single)
	c := h.serve()
	// Longer than a stopping server waits for its calls.
	name := c.create(t, asked(1, scripted(t, object{"min_turn": 1, "output": object{"text": "yes", "delay_s": 20}})))
	for n := range 2 {
		eventually(t, func() bool { return exists(callLog) && callsOf(t, callLog)["question-1 epoch 1 turn 1"] == n+1 }, "the call is in flight")
		h.stop()
		c = h.serve()
	}
	c.once(t, name, callLog, 2)
}

// A modelgw that stops waits for a call that is soon answered, so that it is not paid twice.
func TestAGracefulRestartWaitsForACall(t *testing.T) {
	t.Parallel()
	h, callLog := countedHome(t, &shipped, five)
	c := h.serve()
	name := c.create(t, asked(1, scripted(t, object{"min_turn": 1, "output": object{"text": "yes", "delay_s": 8}})))
	eventually(t, func() bool { return exists(callLog) && len(callsOf(t, callLog)) == 1 }, "the call is in flight")
	h.stop()
	c = h.serve()
	c.once(t, name, callLog, 0)
}

// once expects that an evaluation of one sample succeeds, with the outcome of one call of a model that was made again
// so many times.
func (c *client) once(t *testing.T, name, callLog string, again int) {
	t.Helper()
	eval := c.await(t, name)
	assert.Equal(t, agentv1.EvalState_EVAL_STATE_SUCCEEDED, eval.GetState(), "%v", eval.GetError())
	events := c.journal(t, c.samples(t, name)[0].GetRun())
	checkJournal(t, events)
	outcomes := modelOutcomes(events)
	require.Len(t, outcomes, 1)
	assert.EqualValues(t, again, outcomes[0].GetTiming().GetReissues())
	assert.Equal(t, map[string]int{"question-1 epoch 1 turn 1": again + 1}, callsOf(t, callLog))
}

// An acknowledged cancel holds, whatever happens to the server.
func TestKillAfterCancel(t *testing.T) {
	t.Parallel()
	inEachForm(t, func(t *testing.T, f form) {
		h, callLog := countedHome(t, &shipped, f)
		c := h.serve()
		name := c.create(t, asked(2, scripted(t, object{"min_turn": 1, "output": object{"text": "yes", "delay_s": 600}})))
		eventually(t, func() bool { return exists(callLog) && len(callsOf(t, callLog)) == 2 }, "both calls are in flight")
		_, err := c.evals.CancelEval(within(t), &agentv1.CancelEvalRequest{Name: name})
		require.NoError(t, err)
		h.kill()
		c = h.serve()
		eval := c.await(t, name)
		assert.Equal(t, agentv1.EvalState_EVAL_STATE_CANCELLED, eval.GetState())
		for _, s := range c.samples(t, name) {
			assert.Equal(t, agentv1.RunState_RUN_STATE_CANCELLED, s.GetState())
			checkJournal(t, c.journal(t, s.GetRun()))
		}
		assert.Equal(t, map[string]int{"question-1 epoch 1 turn 1": 1, "question-2 epoch 1 turn 1": 1}, callsOf(t, callLog), "no call was made again")
	})
}

// onlySandbox waits for a sandbox that is ready and returns its name.
func (c *client) onlySandbox(t *testing.T) string {
	t.Helper()
	var name string
	eventually(t, func() bool {
		r, err := c.sandboxes.ListSandboxes(t.Context(), &sandboxv1.ListSandboxesRequest{Parent: project})
		require.NoError(t, err)
		if len(r.GetSandboxes()) == 0 || r.GetSandboxes()[0].GetState() != sandboxv1.SandboxState_SANDBOX_STATE_READY {
			return false
		}
		require.Len(t, r.GetSandboxes(), 1)
		name = r.GetSandboxes()[0].GetName()
		return true
	}, "a sandbox is ready")
	return name
}

// has reports whether a file of a sandbox can be read.
func (c *client) has(t *testing.T, sandbox, path string) bool {
	t.Helper()
	_, err := c.sandboxes.ReadFile(waittest.Context(t), &sandboxv1.ReadFileRequest{Sandbox: sandbox, Path: path})
	if rpcerr.Code(err) != codes.NotFound {
		require.NoError(t, err)
	}
	return err == nil
}

// rounds is how often the tests of chaos run: EVALFLEET_CHAOS_ROUNDS, or twice. The seed of a round is in its name.
func rounds(t *testing.T) int {
	t.Helper()
	given := os.Getenv("EVALFLEET_CHAOS_ROUNDS")
	if given == "" {
		return 2
	}
	n, err := strconv.Atoi(given)
	require.NoError(t, err, "EVALFLEET_CHAOS_ROUNDS is a number")
	return n
}

// The server is killed at a boundary that chance chooses, as deep into the work as chance has it, perhaps deeper than
// there is work.
func TestChaosBoundaries(t *testing.T) {
	want := undisturbed(t)
	inEachForm(t, func(t *testing.T, f form) {
		for range rounds(t) {
			seed := rand.Uint64()
			random := rand.New(rand.NewPCG(seed, 0))
			place, _, _ := strings.Cut(boundaries[random.IntN(len(boundaries))].place, "=")
			place = fmt.Sprintf("%s=%d", place, 1+random.IntN(30))
			t.Run(fmt.Sprintf("seed=%d,%s", seed, place), func(t *testing.T) {
				t.Parallel()
				h, callLog := countedHome(t, &breakable, f, "EVALFLEET_FAILPOINT="+place, "EVALFLEET_FAILPOINT_ONCE="+filepath.Join(t.TempDir(), "once"))
				c := h.serve()
				spec := counted(t)
				name, err := c.ask(t, spec)
				if err == nil {
					err = c.endsBefore(t, name, h.death())
				}
				if err != nil {
					h.died()
					c = h.serve()
					name, err = c.ask(t, spec)
					require.NoError(t, err)
				}
				eval := c.await(t, name)
				assert.Equal(t, want, verdictsOf(t, c, eval))
				checkCounted(t, c, eval, callLog)
			})
		}
	})
}

// maxKills bounds the random kills of a server before the last kill. No call is lost more often than it is reissued.
const maxKills = effect.DefaultMaxReissues - 1

// The server is killed at any moment, several times in one evaluation.
func TestChaosKills(t *testing.T) {
	want := undisturbed(t)
	inEachForm(t, func(t *testing.T, f form) {
		for range rounds(t) {
			seed := rand.Uint64()
			t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
				t.Parallel()
				random := rand.New(rand.NewPCG(seed, 0))
				h, callLog := countedHome(t, &shipped, f)
				c := h.serve()
				name := c.create(t, counted(t))
				// Some of these come while a server starts and adopts the remaining work, with the same calls in flight
				// as before.
				for range 1 + random.IntN(maxKills) {
					anyMoment(random, 900*time.Millisecond)
					h.kill()
					h.launch()
				}
				h.kill()
				c = h.serve()
				eval := c.await(t, name)
				assert.Equal(t, want, verdictsOf(t, c, eval))
				checkCounted(t, c, eval, callLog)
			})
		}
	})
}

// anyMoment waits for a random time. These tests wait for nothing by time; here any moment is right, and that is the
// purpose.
func anyMoment(random *rand.Rand, within time.Duration) {
	<-time.After(time.Duration(random.Int64N(int64(within))))
}

// ended waits until that many samples have ended, and reports whether the evaluation has.
func (c *client) ended(t *testing.T, eval string, samples int) bool {
	t.Helper()
	over := false
	if samples == 0 {
		return over
	}
	c.until(t, eval, func(e *agentv1.Event) bool {
		if e.GetSampleFinished() != nil {
			samples--
		}
		over = e.GetEvalStateChanged().GetState() == agentv1.EvalState_EVAL_STATE_SUCCEEDED
		return samples == 0 || over
	})
	return over
}
