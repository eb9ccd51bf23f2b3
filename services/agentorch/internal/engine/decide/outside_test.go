package decide_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/evalfleet/evalfleet/pkg/chat"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/engine/decide"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/engine/inbox"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/engine/waits"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/run"
)

// asks are requests for effects from outside, after commands of an operator.
func asks(requests []*agentv1.EffectRequest, others ...proto.Message) func() decide.Facts {
	return func() decide.Facts {
		var f decide.Facts
		for _, r := range requests {
			f.Commands = append(f.Commands, inbox.Effect("worker", proto.CloneOf(r)))
		}
		f.Commands = append(f.Commands, commands(others...)().Commands...)
		return f
	}
}

func outsideModel(key string) *agentv1.EffectRequest {
	return &agentv1.EffectRequest{ClientKey: key, Effect: &agentv1.EffectRequest_Generate{Generate: &agentv1.OutsideGenerate{
		Messages: says("what now?"), Tools: []*toolv1.ToolInfo{{Name: "own"}},
	}}}
}

func outsideExec(key string) *agentv1.EffectRequest {
	return &agentv1.EffectRequest{ClientKey: key, Effect: &agentv1.EffectRequest_Exec{Exec: &agentv1.OutsideExec{
		Environment: "default", Spec: &sandboxv1.ExecSpec{Argv: []string{"ls"}},
	}}}
}

// byKey returns the open intent that was asked for under a key.
func (l *lab) byKey(key string) *run.Intent {
	l.t.Helper()
	for _, i := range l.live.Open {
		if i.Event.GetModelIntent().GetClientKey() == key || i.Event.GetExecIntent().GetClientKey() == key {
			return i
		}
	}
	require.FailNow(l.t, "no open intent", "of the key %q", key)
	return nil
}

// An effect that is asked for from outside begins while the agent has one of its own, which it neither waits for nor
// disturbs. It counts as the agent's own.
func TestAnEffectBeginsFromOutside(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.step(nothing, nil)
	own := l.live.Open[0]
	d := l.step(asks([]*agentv1.EffectRequest{outsideModel("k1"), outsideExec("k2")}), nil)
	assert.Equal(t, []string{"command_received", "model_intent", "command_received", "exec_intent"}, kinds(d))
	assert.Equal(t, []string{"effect/k1", "effect/k2"}, d.Took)
	intent := d.Entries[1].Event.GetModelIntent()
	assert.Equal(t, "mockllm/model", intent.GetModel())
	assert.Equal(t, l.live.Key(d.Entries[1].Event.GetSeq()), intent.GetRequestId(), "the run's own key")
	assert.Equal(t, []string{"own"}, intent.GetTools())

	answer := said(l.byKey("k1"), assistant("outside"))
	answer.Outcomes[0].GetModelOutcome().Usage = &modelv1.ModelUsage{TotalTokens: 7}
	assert.Equal(t, []string{"model_outcome"}, kinds(l.step(answers(answer), nil)), "the agent is not asked")
	assert.Equal(t, int64(7), l.live.Total.GetTotalTokens())
	assert.Equal(t, 1, l.live.Turns)
	assert.Nil(t, l.live.Answer())
	failed := run.NewEvent(&agentv1.ExecOutcome{Intent: l.byKey("k2").Seq(), Error: &agentv1.RunError{Reason: "INTERNAL"}})
	l.step(answers(decide.Answer{Outcomes: []*agentv1.Event{failed}}), nil)
	assert.Nil(t, l.live.Fault, "a failure is the asker's")
	d = l.step(answers(said(own, assistant("own"))), nil)
	assert.Equal(t, agentv1.RunState_RUN_STATE_SUCCEEDED, d.Finished.GetState())
	assert.Equal(t, "Start.|own", conversation(l.live.Frame), "what was said outside is not in the agent's conversation")
}

// An agent that is done ends what was asked for on its behalf, and then is done.
func TestWhatWasAskedForEndsWithItsAgent(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.step(nothing, nil)
	own := l.live.Open[0]
	l.step(asks([]*agentv1.EffectRequest{outsideModel("k")}), nil)
	outside := l.byKey("k")
	d := l.step(answers(said(own, assistant("own"))), nil)
	assert.Equal(t, []string{"model_outcome", "interrupted"}, kinds(d))
	assert.True(t, only(d, "interrupted")[0].GetInterrupted().GetOutside())
	assert.True(t, l.live.Cuts(outside))
	assert.Empty(t, l.step(nothing, nil).Entries)
	d = l.step(answers(stoppedModel(outside)), nil)
	assert.True(t, d.Entries[0].Event.GetModelOutcome().GetInterrupted())
	assert.Equal(t, agentv1.RunState_RUN_STATE_SUCCEEDED, d.Finished.GetState())
	assert.Equal(t, "Start.|own", conversation(l.live.Frame))
}

// After a cancel no effect from outside begins, even if it was requested before; nor for an inactive agent, nor over a
// limit.
func TestWhatMayNotBeginFromOutside(t *testing.T) {
	t.Parallel()
	refused := func(d *decide.Step, more ...string) {
		t.Helper()
		all := only(d, "command_received")
		assert.True(t, all[len(all)-1].GetCommandReceived().GetOutdated())
		assert.Empty(t, only(d, "model_intent"))
		assert.Subset(t, kinds(d), more)
		assert.Contains(t, d.Took, "effect/k")
	}
	l := newLab(t)
	l.step(nothing, nil)
	refused(l.step(asks([]*agentv1.EffectRequest{outsideModel("k")}, &agentv1.CancelRunRequest{}), nil))

	l = newLab(t)
	l.step(nothing, nil)
	strange := outsideModel("k")
	strange.Span = "9"
	refused(l.step(asks([]*agentv1.EffectRequest{strange}), nil))
	l.step(commands(&agentv1.RetuneLimitsRequest{
		Limits: &agentv1.RunLimits{Messages: new(int32(1))}, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"messages"}},
	}), nil)
	refused(l.step(asks([]*agentv1.EffectRequest{outsideModel("k")}), nil), "limit_hit")
}

// What cannot begin now stays in the inbox: until the run's first step has begun, and while it is held.
func TestWhatMayNotBeginYetStaysInTheInbox(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	d := l.step(asks([]*agentv1.EffectRequest{outsideModel("k")}), nil)
	assert.True(t, d.Left)
	assert.Empty(t, d.Took)
	d = l.step(asks([]*agentv1.EffectRequest{outsideModel("k")}, &agentv1.HoldRunRequest{}), nil)
	assert.True(t, d.Left)
	assert.Equal(t, []string{"a"}, d.Took)
	d = l.step(asks([]*agentv1.EffectRequest{outsideModel("k")}, &agentv1.ResumeRunRequest{}), nil)
	assert.False(t, d.Left)
	assert.Equal(t, "k", l.byKey("k").Event.GetModelIntent().GetClientKey())
}

// A provider that turned an asker's call away has the asker decide, and not the agent wait.
func TestAnAskersCallThatIsTurnedAwayIsOver(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.step(nothing, nil)
	l.step(asks([]*agentv1.EffectRequest{outsideModel("k")}), nil)
	turned := stoppedModel(l.byKey("k"))
	turned.Outcomes[0].GetModelOutcome().Error.Reason = "PROVIDER_RATE_LIMITED"
	turned.Key = l.live.Key(l.byKey("k").Seq())
	turned.Wait = &agentv1.RunWait{Reason: waits.Capacity, RetryTime: timestamppb.New(began.Add(time.Hour))}
	assert.Equal(t, []string{"model_outcome"}, kinds(l.step(answers(turned), nil)))
	assert.Equal(t, agentv1.RunState_RUN_STATE_RUNNING, l.live.Phase)
}

// An operator who cuts a turn cuts what was asked for on the agent's behalf too.
func TestAnInterruptCutsWhatWasAskedFor(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.step(nothing, nil)
	l.step(asks([]*agentv1.EffectRequest{outsideModel("k")}), nil)
	own, outside := l.live.Open[0], l.byKey("k")
	l.step(commands(&agentv1.InterruptRunRequest{Messages: []*modelv1.ChatMessage{chat.User("stop")}}), nil)
	assert.True(t, l.live.Cuts(own) && l.live.Cuts(outside))
	d := l.step(answers(stoppedModel(outside), stoppedModel(own)), nil)
	assert.Equal(t, []string{"model_outcome", "model_outcome", "message_added", "model_intent"}, kinds(d))
}
