package engine_test

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"github.com/evalfleet/evalfleet/pkg/enum"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/engine/inbox"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/run"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/servicetest"
)

func (f *fleet) send(name, id string, request proto.Message) {
	f.T.Helper()
	require.NoError(f.T, f.Runs.Post(f.T.Context(), name, inbox.Command{ID: id, Principal: "user:ada", Request: request}))
}

// hanging is a model whose answers never come.
func hanging(begun chan<- struct{}) func(context.Context, *modelv1.GenerateRequest) (*modelv1.ModelOutput, error) {
	return func(ctx context.Context, _ *modelv1.GenerateRequest) (*modelv1.ModelOutput, error) {
		begun <- struct{}{}
		<-ctx.Done()
		return nil, ctx.Err()
	}
}

func TestCancel(t *testing.T) {
	t.Parallel()
	for mode, want := range map[string]struct {
		phase  agentv1.RunState
		scores int
		limit  string
	}{
		"":       {agentv1.RunState_RUN_STATE_CANCELLED, 0, ""},
		"cancel": {agentv1.RunState_RUN_STATE_CANCELLED, 0, ""},
		"score":  {agentv1.RunState_RUN_STATE_SUCCEEDED, 1, "operator"},
		"error":  {agentv1.RunState_RUN_STATE_FAILED, 0, ""},
	} {
		t.Run("mode "+mode, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t).start()
			begun := make(chan struct{}, 1)
			f.Models.Answer = hanging(begun)
			s := spec(step("generate", ""))
			s.Scorers = []*agentv1.ScorerRef{{Name: "includes"}}
			s.Target = &agentv1.Target{Values: []string{"x"}}
			s.Sandboxes = map[string]*sandboxv1.SandboxSpec{"default": {}}
			name := f.Create(s).Name
			waittest.For(t, begun, "the model call of the run")
			f.send(name, "k", &agentv1.CancelRunRequest{Mode: agentv1.CancelMode(agentv1.CancelMode_value["CANCEL_MODE_"+strings.ToUpper(mode)]), Reason: "enough"})
			got := f.Finish(name)
			assert.Equal(t, want.phase, got.Phase)
			assert.Len(t, got.FinalScores(), want.scores)
			assert.Equal(t, want.limit, enum.Word(got.Limit.GetType()))
			assert.Empty(t, f.Sandboxes.Alive())

			var acknowledged, outcome int64
			for e, err := range f.Events(name) {
				require.NoError(t, err)
				switch {
				case e.GetCommandReceived() != nil:
					assert.Equal(t, "user:ada", e.GetActor())
					assert.Equal(t, "enough", e.GetCommandReceived().GetReason())
					assert.Equal(t, agentv1.CommandType_COMMAND_TYPE_CANCEL, e.GetCommandReceived().GetType())
					assert.Equal(t, cmp.Or(mode, "cancel"), enum.Word(e.GetCommandReceived().GetMode()))
				case e.GetModelOutcome() != nil:
					outcome = e.GetSeq()
					assert.Equal(t, "EFFECT_CANCELLED", e.GetModelOutcome().GetError().GetReason())
				case e.GetCancelAcknowledged() != nil:
					acknowledged = e.GetSeq()
				case acknowledged > 0:
					assert.Nil(t, e.GetModelIntent(), "after a cancel was acknowledged the agent does nothing more")
				}
			}
			assert.Greater(t, acknowledged, outcome, "a cancel is acknowledged when nothing is under way")
			seq, err := f.Store.Taken(t.Context(), name, "k")
			require.NoError(t, err)
			assert.Positive(t, seq)
		})
	}
}

// TestCancelAcrossARestart cancels while no replica drives the run: the successor stops the effect, and never executes
// it again.
func TestCancelAcrossARestart(t *testing.T) {
	t.Parallel()
	f := newFleet(t).start()
	begun := make(chan struct{}, 2)
	f.Tools.Tools["hang"] = servicetest.Tool{Run: func(ctx context.Context, _ servicetest.Call) (*toolv1.ToolResult, error) {
		begun <- struct{}{}
		<-ctx.Done()
		return nil, ctx.Err()
	}}
	f.Models.Answer = servicetest.ByTurn(servicetest.Says("go", call("c1", "hang", `{}`)))
	name := f.Create(spec(step("generate", "", "hang"))).Name
	waittest.For(t, begun, "the call of the tool that hangs")
	f.End()
	f.send(name, "k", &agentv1.CancelRunRequest{})
	f.start()
	got := f.Finish(name)
	assert.Equal(t, agentv1.RunState_RUN_STATE_CANCELLED, got.Phase)
	assert.Equal(t, 1, f.Tools.Total())
}

// TestACancelStopsTheMakingOfASandbox cancels a run while its sandbox is made, which nothing ends but the cancel. A
// successor that finds the run cancelled has it stopped too.
func TestACancelStopsTheMakingOfASandbox(t *testing.T) {
	t.Parallel()
	for _, restart := range []bool{false, true} {
		t.Run(fmt.Sprint("restart=", restart), func(t *testing.T) {
			t.Parallel()
			f := newFleet(t).start()
			begun := make(chan struct{}, 1)
			f.Sandboxes.Hold = func(ctx context.Context) { begun <- struct{}{}; <-ctx.Done() }
			s := spec(step("generate", ""))
			s.Sandboxes = map[string]*sandboxv1.SandboxSpec{"default": {}}
			name := f.Create(s).Name
			waittest.For(t, begun, "the making of the sandbox")
			if restart {
				f.End()
			}
			f.send(name, "k", &agentv1.CancelRunRequest{})
			if restart {
				f.start()
			}
			assert.Equal(t, agentv1.RunState_RUN_STATE_CANCELLED, f.Finish(name).Phase)
			assert.Equal(t, 0, f.Sandboxes.Made())
			assert.Empty(t, f.Sandboxes.Alive())
			f.Models.CheckOnce(t)
			assert.Zero(t, f.Models.Total(), "no later effect begins")
		})
	}
}

// TestCancelledBeforeItBegan cancels a run whose model call waits for its place: the key is entombed.
func TestCancelledBeforeItBegan(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.Config.MaxGenerates = 1
	f.start()
	begun := make(chan struct{}, 2)
	f.Models.Answer = hanging(begun)
	first := f.Create(spec(step("generate", ""))).Name
	waittest.For(t, begun, "the model call of the first run")
	second := f.Create(spec(step("generate", ""))).Name
	f.Until(second, func(s *run.State) bool { return len(s.Open) == 1 })
	f.send(second, "k", &agentv1.CancelRunRequest{})
	assert.Equal(t, agentv1.RunState_RUN_STATE_CANCELLED, f.Finish(second).Phase)
	assert.Equal(t, 1, f.Models.Total())
	f.send(first, "k", &agentv1.CancelRunRequest{})
	assert.Equal(t, agentv1.RunState_RUN_STATE_CANCELLED, f.Finish(first).Phase)
}

func TestHoldAndResume(t *testing.T) {
	t.Parallel()
	f := newFleet(t).start()
	let, begun := make(chan struct{}), make(chan struct{}, 1)
	f.Models.Answer = func(_ context.Context, r *modelv1.GenerateRequest) (*modelv1.ModelOutput, error) {
		if r.GetAttribution().GetTurn() == 1 {
			begun <- struct{}{}
			waittest.Hold(t, let)
			return servicetest.Say("go", call("c1", "add", `{}`)), nil
		}
		return servicetest.Say("end"), nil
	}
	f.Tools.Tools["add"] = servicetest.Tool{Run: func(context.Context, servicetest.Call) (*toolv1.ToolResult, error) { return servicetest.Text("1"), nil }}
	name := f.Create(spec(step("generate", "", "add"))).Name
	waittest.For(t, begun, "the model call of the run")
	f.send(name, "h", &agentv1.HoldRunRequest{})
	f.Until(name, func(s *run.State) bool { return s.Held })
	close(let)
	f.Until(name, func(s *run.State) bool { return s.Phase == agentv1.RunState_RUN_STATE_WAITING })
	assert.Zero(t, f.Tools.Total(), "the step under way ends, no other begins")
	f.End()
	f.start()
	f.send(name, "r", &agentv1.ResumeRunRequest{})
	assert.Equal(t, agentv1.RunState_RUN_STATE_SUCCEEDED, f.Finish(name).Phase)
	assert.Equal(t, []string{"RUNNING", "WAITINGhold", "RUNNING", "end"}, f.phases(name))
}

func TestPostedMessagesComeBeforeTheNextTurn(t *testing.T) {
	t.Parallel()
	f := newFleet(t).start()
	let, begun := make(chan struct{}), make(chan struct{}, 1)
	f.Models.Answer = func(_ context.Context, r *modelv1.GenerateRequest) (*modelv1.ModelOutput, error) {
		if r.GetAttribution().GetTurn() == 1 {
			begun <- struct{}{}
			waittest.Hold(t, let)
			return servicetest.Say("Thinking."), nil
		}
		return servicetest.Say("Done", call("c1", "submit", `{"answer": "42"}`)), nil
	}
	name := f.Create(spec(step("react", `{"prompt": null}`))).Name
	waittest.For(t, begun, "the model call of the run")
	f.send(name, "m1", &agentv1.PostMessageRequest{Messages: []*modelv1.ChatMessage{user("One.")}})
	f.send(name, "m2", &agentv1.PostMessageRequest{Messages: []*modelv1.ChatMessage{user("Two.")}})
	f.Until(name, func(s *run.State) bool { return len(s.Posted) == 2 })
	close(let)
	got := f.Finish(name)
	messages := texts(got.Messages())
	assert.Equal(t, []string{"U:Start.", "A:Thinking.", messages[2], "U:One.\n\nTwo.", "A:Done\n\n42"}, messages)
	assert.Equal(t, modelv1.MessageSource_MESSAGE_SOURCE_OPERATOR, got.Messages()[3].GetSource())
}

// TestWaitsForSomeoneToAsk has an agent without a question: it waits for an operator, also over a restart.
func TestWaitsForSomeoneToAsk(t *testing.T) {
	t.Parallel()
	f := newFleet(t).start()
	f.Models.Answer = servicetest.ByTurn(servicetest.Says("Done", call("c1", "submit", `{"answer": "42"}`)))
	s := spec(step("react", `{"prompt": "Listen."}`))
	s.Input = nil
	name := f.Create(s).Name
	f.Until(name, func(s *run.State) bool { return s.Wait.GetReason() == agentv1.WaitReason_WAIT_REASON_INPUT })
	f.End()
	f.start()
	f.send(name, "m1", &agentv1.PostMessageRequest{Messages: []*modelv1.ChatMessage{user("What is it?")}})
	got := f.Finish(name)
	messages := texts(got.Messages())
	assert.Equal(t, []string{messages[0], "U:What is it?", "A:Done\n\n42"}, messages)
}

func TestRetuneLimits(t *testing.T) {
	t.Parallel()
	f := newFleet(t).start()
	let, begun := make(chan struct{}), make(chan struct{}, 1)
	f.Models.Answer = func(_ context.Context, r *modelv1.GenerateRequest) (*modelv1.ModelOutput, error) {
		if r.GetAttribution().GetTurn() == 1 {
			begun <- struct{}{}
			waittest.Hold(t, let)
		}
		return servicetest.Say("Thinking."), nil
	}
	s := spec(step("react", ""))
	s.Limits = &agentv1.RunLimits{Turns: new(int32(100)), Messages: new(int32(200))}
	name := f.Create(s).Name
	waittest.For(t, begun, "the model call of the run")
	f.send(name, "l", &agentv1.RetuneLimitsRequest{Limits: &agentv1.RunLimits{Turns: new(int32(2))}, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"turns"}}})
	f.Until(name, func(s *run.State) bool { return s.Limits.Bounds().GetTurns() == 2 })
	close(let)
	got := f.Finish(name)
	assert.Equal(t, agentv1.LimitType_LIMIT_TYPE_TURN, got.Limit.GetType())
	assert.Equal(t, 3, got.Turns)
	assert.Equal(t, int32(200), got.Limits.Bounds().GetMessages())
}
