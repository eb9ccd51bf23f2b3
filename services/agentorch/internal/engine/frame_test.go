package engine_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/chat"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/agent"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/agent/agenttest"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/ownertest"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/run"
)

// task is the start of an agent that has a model and a tool.
func task(name string, tools ...string) agent.Start {
	start := agenttest.Task("generate", name)
	for _, tool := range tools {
		start.Agent.Tools = append(start.Agent.Tools, &toolv1.ToolRef{Name: tool})
	}
	return start
}

// answerTasks has the model answer the agent of each task, which is its first message, turn by turn.
func (f *fleet) answerTasks(answers map[string][]func() *modelv1.ModelOutput) {
	f.Models.Answer = func(_ context.Context, r *modelv1.GenerateRequest) (*modelv1.ModelOutput, error) {
		turn := 0
		for _, m := range r.GetMessages() {
			if m.GetRole() == modelv1.Role_ROLE_ASSISTANT {
				turn++
			}
		}
		return answers[chat.Text(r.GetMessages()[0])][turn](), nil
	}
}

// A run waits for two workers at once, over a restart too, and each that comes wakes the agent that waits for it.
func TestEachWorkerThatARunWaitsForWakesIt(t *testing.T) {
	t.Parallel()
	f := newFleet(t, agenttest.Delegates(task("one", "x"), task("two", "y")))
	there := map[string]chan struct{}{"x": make(chan struct{}), "y": make(chan struct{})}
	for name, here := range there {
		f.Tools.Tools[name] = ownertest.Tool{Run: func(context.Context, ownertest.Call) (*toolv1.ToolResult, error) {
			select {
			case <-here:
				return ownertest.Text(name + " is here"), nil
			default:
				return nil, rpcerr.WorkerUnavailable("tool", name, time.Hour, "waiting for a worker of tool %s", name)
			}
		}}
	}
	f.Tools.Workers = make(chan *toolv1.WatchWorkersResponse)
	f.answerTasks(map[string][]func() *modelv1.ModelOutput{
		"one": {ownertest.Says("", call("c1", "x", `{}`)), ownertest.Says("one is done")},
		"two": {ownertest.Says("", call("c2", "y", `{}`)), ownertest.Says("two is done")},
	})
	f.start()
	name := f.Create(spec(step("delegates", "", "x", "y"))).Name
	both := func(s *run.State) bool {
		return len(s.Subjects()) == 2 && s.Phase == agentv1.RunState_RUN_STATE_WAITING
	}
	f.Until(name, both)
	f.End()
	f.start()
	close(there["y"])
	f.comes("projects/p", "y")
	got := f.Until(name, func(s *run.State) bool { return s.Frame.Conversation().Len() == 2 })
	assert.Equal(t, []string{"U:Start.", "U:two is done"}, texts(got.Messages()))
	assert.Equal(t, []string{"tool x"}, f.Until(name, func(s *run.State) bool { return s.Wait != nil }).Subjects())
	close(there["x"])
	f.comes("projects/p", "x")
	got = f.Finish(name)
	require.Equal(t, agentv1.RunState_RUN_STATE_SUCCEEDED, got.Phase)
	assert.Equal(t, []string{"U:Start.", "U:two is done", "U:one is done"}, texts(got.Messages()))
	f.Tools.CheckOnce(t)
}

// While toolexec does not review the calls of one agent, another comes to its end, and commands are taken.
func TestAReviewThatIsLateHoldsUpItsAgentAlone(t *testing.T) {
	t.Parallel()
	f := newFleet(t, agenttest.Delegates(task("one", "x"), task("two", "x")))
	f.Tools.Tools["x"] = ownertest.Tool{Run: func(context.Context, ownertest.Call) (*toolv1.ToolResult, error) { return ownertest.Text("ok"), nil }}
	reviewed, asked := make(chan struct{}), make(chan struct{}, 10)
	f.Tools.Review = func(r *toolv1.ReviewToolsRequest) (all []*toolv1.ToolReview, err error) {
		for _, c := range r.GetCalls() {
			if c.GetId() == "c1" {
				asked <- struct{}{}
				waittest.Hold(t, reviewed)
			}
			all = append(all, &toolv1.ToolReview{CallId: c.GetId(), Call: c, Decision: toolv1.ReviewDecision_REVIEW_DECISION_RUN})
		}
		return all, nil
	}
	f.answerTasks(map[string][]func() *modelv1.ModelOutput{
		"one": {ownertest.Says("", call("c1", "x", `{}`)), ownertest.Says("one is done")},
		"two": {ownertest.Says("", call("c2", "x", `{}`)), ownertest.Says("two is done")},
	})
	f.start()
	name := f.Create(spec(step("delegates", "", "x"))).Name
	got := f.Until(name, func(s *run.State) bool { return s.Frame.Conversation().Len() == 2 })
	assert.Equal(t, []string{"U:Start.", "U:two is done"}, texts(got.Messages()))
	f.send(name, "limits", &agentv1.RetuneLimitsRequest{})
	f.Until(name, func(s *run.State) bool { return s.Seq > got.Seq })
	close(reviewed)
	got = f.Finish(name)
	assert.Equal(t, []string{"U:Start.", "U:two is done", "U:one is done"}, texts(got.Messages()))
	assert.Len(t, asked, 1, "the review that was late is used")
}
