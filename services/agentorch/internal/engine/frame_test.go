package engine_test

import (
	"context"
	"fmt"
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
	"github.com/evalfleet/evalfleet/services/agentorch/internal/agent/generate"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/run"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/servicetest"
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
		f.Tools.Tools[name] = servicetest.Tool{Run: func(context.Context, servicetest.Call) (*toolv1.ToolResult, error) {
			select {
			case <-here:
				return servicetest.Text(name + " is here"), nil
			default:
				return nil, rpcerr.WorkerUnavailable("tool", name, time.Hour, "waiting for a worker of tool %s", name)
			}
		}}
	}
	f.Tools.Workers = make(chan *toolv1.WatchWorkersResponse)
	f.answerTasks(map[string][]func() *modelv1.ModelOutput{
		"one": {servicetest.Says("", call("c1", "x", `{}`)), servicetest.Says("one is done")},
		"two": {servicetest.Says("", call("c2", "y", `{}`)), servicetest.Says("two is done")},
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
	got := f.Until(name, func(s *run.State) bool { return s.Frame.Sent().Len() == 2 })
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
	f.Tools.Tools["x"] = servicetest.Tool{Run: func(context.Context, servicetest.Call) (*toolv1.ToolResult, error) {
		return servicetest.Text("ok"), nil
	}}
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
		"one": {servicetest.Says("", call("c1", "x", `{}`)), servicetest.Says("one is done")},
		"two": {servicetest.Says("", call("c2", "x", `{}`)), servicetest.Says("two is done")},
	})
	f.start()
	name := f.Create(spec(step("delegates", "", "x"))).Name
	got := f.Until(name, func(s *run.State) bool { return s.Frame.Sent().Len() == 2 })
	assert.Equal(t, []string{"U:Start.", "U:two is done"}, texts(got.Messages()))
	f.send(name, "limits", &agentv1.RetuneLimitsRequest{})
	f.Until(name, func(s *run.State) bool { return s.Seq > got.Seq })
	close(reviewed)
	got = f.Finish(name)
	assert.Equal(t, []string{"U:Start.", "U:two is done", "U:one is done"}, texts(got.Messages()))
	assert.Len(t, asked, 1, "the review that was late is used")
}

// Each agent of a run has tools of its own: one name is another tool in another agent, to the model, to the review,
// when it is executed, and after the death of the engine.
func TestANameIsAnotherToolInAnotherAgent(t *testing.T) {
	t.Parallel()
	definition := func(key string) *toolv1.ToolDefinition {
		return &toolv1.ToolDefinition{Info: &toolv1.ToolInfo{Name: "look", Description: "Looks at " + key, ParametersJson: `{"type": "object"}`}, StoreKeys: []string{key}}
	}
	begins := func(name, tool string) agent.Start {
		start := agenttest.Task("generate", name)
		start.Agent.Tools = []*toolv1.ToolRef{{Name: tool, Rename: "look"}}
		start.Tools = []*toolv1.ToolDefinition{definition(tool)}
		return start
	}
	f := newFleet(t, agenttest.Delegates(begins("one", "left"), begins("two", "right")))
	began, let := make(chan struct{}, 2), make(chan struct{})
	for _, name := range []string{"left", "right", "look"} {
		f.Tools.Tools[name] = servicetest.Tool{StoreKeys: []string{name}, Run: func(_ context.Context, c servicetest.Call) (*toolv1.ToolResult, error) {
			began <- struct{}{}
			waittest.Hold(t, let)
			return servicetest.Text(fmt.Sprint(name, " sees ", c.Store)), nil
		}}
	}
	f.answerTasks(map[string][]func() *modelv1.ModelOutput{
		"one": {servicetest.Says("", call("c1", "look", `{}`)), servicetest.Says("one is done")},
		"two": {servicetest.Says("", call("c2", "look", `{}`)), servicetest.Says("two is done")},
	})
	f.start()
	s := spec(step("delegates", "", "look"))
	s.Store = map[string]string{"left": "1", "right": "2", "look": "3"}
	name := f.Create(s).Name
	waittest.For(t, began, "the first call")
	waittest.For(t, began, "the second call")
	f.End()
	f.start()
	close(let)
	require.Equal(t, agentv1.RunState_RUN_STATE_SUCCEEDED, f.Finish(name).Phase)
	f.Tools.CheckOnce(t)
	said := map[string][]string{}
	for _, r := range f.Models.Requests() {
		messages := texts(r.GetMessages())
		said[messages[0]] = append(said[messages[0]], r.GetTools()[0].GetDescription(), messages[len(messages)-1])
	}
	assert.Equal(t, map[string][]string{
		"U:one": {"Looks at left", "U:one", "Looks at left", "T:left sees map[left:1]"},
		"U:two": {"Looks at right", "U:two", "Looks at right", "T:right sees map[right:2]"},
	}, said)
}

// siblings is a run whose agent starts two others concurrently, each with two concurrent tools between its answers.
func siblings(f *fleet) *agentv1.RunSpec {
	f.Agents = agent.NewRegistry(generate.Definition(), agenttest.Delegates(task("one", "x", "y"), task("two", "x", "y")))
	for _, name := range []string{"x", "y"} {
		f.Tools.Tools[name] = servicetest.Tool{Parallel: true, Run: func(context.Context, servicetest.Call) (*toolv1.ToolResult, error) {
			return servicetest.Text(name), nil
		}}
	}
	both := servicetest.Says("", call("c1", "x", `{}`), call("c2", "y", `{}`))
	turns := []func() *modelv1.ModelOutput{both, both, servicetest.Says("done")}
	f.answerTasks(map[string][]func() *modelv1.ModelOutput{"one": turns, "two": turns})
	return spec(step("delegates", "", "x", "y"))
}

// Agents side by side come to the same however often the process dies: each begins once, and each of their calls is
// made once.
func TestDeathAtEveryAppendOfSiblings(t *testing.T) {
	t.Parallel()
	calm := newFleet(t)
	s := siblings(calm)
	want := calm.start().ending(calm.Finish(calm.Create(s).Name))
	assert.Equal(t, ending{
		Phase: agentv1.RunState_RUN_STATE_SUCCEEDED, Messages: []string{"U:Start.", "U:done", "U:done"}, Store: map[string]string{},
		Tokens: 90, Turns: 6, Working: "0s", Models: 6, Tools: 8, Agents: 2,
	}, want)
	dieEverywhere(t, want, siblings)
}
