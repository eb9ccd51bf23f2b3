package engine_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/evalfleet/evalfleet/pkg/chat"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	effectv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/effect/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/mailbox"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/run"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/servicetest"
)

func outsideCall(key string) *agentv1.EffectRequest {
	return &agentv1.EffectRequest{ClientKey: key, Effect: &agentv1.EffectRequest_Generate{Generate: &agentv1.OutsideGenerate{
		Messages: []*modelv1.ChatMessage{user("And now?")}, Tools: []*toolv1.ToolInfo{{Name: "own", ParametersJson: `{"type": "object"}`}},
	}}}
}

func outsideTool(key, function string) *agentv1.EffectRequest {
	return &agentv1.EffectRequest{ClientKey: key, Effect: &agentv1.EffectRequest_ToolCall{ToolCall: &agentv1.OutsideToolCall{
		Call: call("", function, `{"x": 1}`),
	}}}
}

// answered waits until the journal of a run has that many outcomes of what was asked for from outside.
func (f *fleet) answered(name string, n int) error {
	return mailbox.Await(waittest.Context(f.T), f.Store, name, 0, func() (bool, error) {
		asked, ended := map[int64]bool{}, 0
		for e, err := range f.Events(name) {
			if err != nil {
				return false, err
			}
			switch {
			case journal.ClientKey(e) != "":
				asked[e.GetSeq()] = true
			case asked[journal.IntentOf(e)]:
				ended++
			}
		}
		return ended >= n, nil
	})
}

// assistedLife is a run of which a program asks for a model call, a command, a tool call and one of no tool, each of
// them twice, while a model call of the agent is open, and reads in the journal what came of them.
func assistedLife(f *fleet) *agentv1.RunSpec {
	f.Config.Beat = 20 * time.Millisecond
	exec := &agentv1.EffectRequest{ClientKey: "k2", Effect: &agentv1.EffectRequest_Exec{Exec: &agentv1.OutsideExec{
		Environment: "default", Spec: &sandboxv1.ExecSpec{Argv: []string{"ls"}},
	}}}
	f.Models.Answer = func(_ context.Context, r *modelv1.GenerateRequest) (*modelv1.ModelOutput, error) {
		if r.GetAttribution().GetPurpose() == run.PurposeOutside {
			return servicetest.Say("outside"), nil
		}
		name := r.GetAttribution().GetRun()
		for range 2 {
			if err := f.leave(name, outsideCall("k1"), exec, outsideTool("k3", "look"), outsideTool("k4", "nosuch")); err != nil {
				return nil, err
			}
		}
		if err := f.answered(name, 4); err != nil {
			return nil, err
		}
		return servicetest.Say("Done."), nil
	}
	f.Sandboxes.Run = func(context.Context, *sandboxv1.ExecRequest) (*sandboxv1.ExecResult, error) {
		return &sandboxv1.ExecResult{Stdout: []byte("a\n")}, nil
	}
	f.Tools.Tools["look"] = servicetest.Tool{StoreKeys: []string{"seen"}, Run: func(_ context.Context, c servicetest.Call) (*toolv1.ToolResult, error) {
		return &toolv1.ToolResult{
			Content: chat.TextContent("was " + c.Store["seen"]), StoreChanges: []*toolv1.StoreChange{{Key: "seen", ValueJson: new("2")}},
			Timing: &effectv1.Timing{Working: durationpb.New(time.Second)},
		}, nil
	}}
	s := spec(step("generate", "", "look"))
	s.Sandboxes = map[string]*sandboxv1.SandboxSpec{"default": {}}
	s.Store = map[string]string{"seen": "1"}
	return s
}

func TestAnAssistedLife(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	s := assistedLife(f)
	f.start()
	name := f.Create(s).Name
	got := f.ending(f.Finish(name))
	assert.Equal(t, []string{"U:Start.", "A:Done."}, got.Messages)
	assert.Equal(t, []int{2, 2, 2}, []int{got.Models, got.Execs, got.Turns}, "a sandbox and a command: the same key is the same effect, and a call is a turn of the run")
	assert.Equal(t, 1, got.Tools, "the call of no tool never begins")
	assert.Equal(t, []string{"2", "1s"}, []string{got.Store["seen"], got.Working})
	assert.ElementsMatch(t, []string{"was 1", "there is no tool nosuch"}, f.results(name))
	var asked *modelv1.GenerateRequest
	for _, r := range f.Models.Requests() {
		if r.GetAttribution().GetPurpose() == run.PurposeOutside {
			asked = r
		}
	}
	require.NotNil(t, asked)
	assert.Equal(t, []string{"U:And now?"}, texts(asked.GetMessages()))
	assert.Equal(t, "own", asked.GetTools()[0].GetName())
	assert.Equal(t, "mockllm/model", asked.GetModel())
}

// What was asked for from outside happens once, however often the process dies: between the command and its intent,
// between the intent and its outcome, and at every other append.
func TestDeathAtEveryAppendOfAnAssistedLife(t *testing.T) {
	t.Parallel()
	calm := newFleet(t)
	s := assistedLife(calm)
	calm.start()
	want := calm.ending(calm.Finish(calm.Create(s).Name))
	dieEverywhere(t, want, assistedLife)
}

// After a cancel nothing begins from outside, be it asked for before or after it.
func TestNothingBeginsFromOutsideAfterACancel(t *testing.T) {
	t.Parallel()
	f := newFleet(t).start()
	begun := make(chan struct{}, 4)
	f.Models.Answer = hanging(begun)
	name := f.Create(spec(step("generate", ""))).Name
	waittest.For(t, begun, "the model call of the run")
	f.End()
	require.NoError(t, f.leave(name, outsideCall("before"), outsideTool("tool", "look")))
	f.send(name, "k", &agentv1.CancelRunRequest{})
	require.NoError(t, f.leave(name, outsideCall("after")))
	f.start()
	assert.Equal(t, agentv1.RunState_RUN_STATE_CANCELLED, f.Finish(name).Phase)
	assert.Equal(t, 1, f.Models.Total())
	assert.Zero(t, f.Tools.Total())
}

// aided is a run whose model call is open, and a tool call from outside, which hangs. The review of the call waits for
// reviewed.
func aided(t *testing.T, reviewed <-chan struct{}) (f *fleet, name string, began <-chan struct{}) {
	t.Helper()
	f = newFleet(t)
	asked, begun := make(chan struct{}, 2), make(chan struct{}, 2)
	f.Models.Answer = hanging(asked)
	f.Tools.Tools["hang"] = servicetest.Tool{Run: func(ctx context.Context, _ servicetest.Call) (*toolv1.ToolResult, error) {
		begun <- struct{}{}
		<-ctx.Done()
		return nil, ctx.Err()
	}}
	f.Tools.Review = func(r *toolv1.ReviewToolsRequest) ([]*toolv1.ToolReview, error) {
		<-reviewed
		c := r.GetCalls()[0]
		return []*toolv1.ToolReview{{CallId: c.GetId(), Call: c, Decision: toolv1.ReviewDecision_REVIEW_DECISION_RUN}}, nil
	}
	f.start()
	name = f.Create(spec(step("generate", "", "hang"))).Name
	waittest.For(t, asked, "the model call of the run")
	require.NoError(t, f.leave(name, outsideTool("k", "hang")))
	f.Engine.Wake(name)
	return f, name, begun
}

func reviewedAtOnce() <-chan struct{} {
	at := make(chan struct{})
	close(at)
	return at
}

// A cancel that comes while no replica drives the run stops the tool call from outside, which is not made again.
func TestACancelStopsAToolCallFromOutside(t *testing.T) {
	t.Parallel()
	f, name, began := aided(t, reviewedAtOnce())
	waittest.For(t, began, "the call from outside")
	f.End()
	f.send(name, "c", &agentv1.CancelRunRequest{})
	f.start()
	assert.Equal(t, agentv1.RunState_RUN_STATE_CANCELLED, f.Finish(name).Phase)
	assert.Equal(t, 1, f.Tools.Total())
}

// One tool call from outside is stopped by its id; the run continues.
func TestOneToolCallFromOutsideIsStopped(t *testing.T) {
	t.Parallel()
	f, name, began := aided(t, reviewedAtOnce())
	waittest.For(t, began, "the call from outside")
	f.send(name, "s", &agentv1.CancelCallRequest{CallId: "k"})
	require.NoError(t, f.answered(name, 1))
	assert.Equal(t, agentv1.RunState_RUN_STATE_RUNNING, f.State(name).Phase)
	f.send(name, "c", &agentv1.CancelRunRequest{})
	f.Finish(name)
}

// A review that is late keeps neither the run nor its other commands waiting, and the call begins once it is there.
func TestAToolCallFromOutsideBeginsWhenItsReviewIsThere(t *testing.T) {
	t.Parallel()
	let := make(chan struct{})
	f, name, began := aided(t, let)
	f.send(name, "m", &agentv1.PostMessageRequest{Messages: []*modelv1.ChatMessage{user("hello")}})
	f.Until(name, func(s *run.State) bool { return len(s.Posted) == 1 })
	assert.Zero(t, f.Tools.Total())
	close(let)
	waittest.For(t, began, "the call from outside")
	f.send(name, "c", &agentv1.CancelRunRequest{})
	f.Finish(name)
}

// results are what came of tool calls, in order.
func (f *fleet) results(name string) (all []string) {
	f.T.Helper()
	for e, err := range f.Events(name) {
		require.NoError(f.T, err)
		if result := e.GetToolOutcome().GetContent().GetResult(); result != nil {
			all = append(all, chat.ContentText(result.GetContent())+result.GetError().GetMessage())
		}
	}
	return all
}
