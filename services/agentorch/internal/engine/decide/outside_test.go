package decide_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"github.com/evalfleet/evalfleet/pkg/chat"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/engine/decide"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/engine/inbox"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/engine/waits"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
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

func outsideTool(key string) *agentv1.EffectRequest {
	return &agentv1.EffectRequest{ClientKey: key, Effect: &agentv1.EffectRequest_ToolCall{ToolCall: &agentv1.OutsideToolCall{
		Call: chat.Call("", "weather", `{}`),
	}}}
}

// decided is a review with a decision.
func decided(decision toolv1.ReviewDecision, err *toolv1.ToolCallError) func(*toolv1.ToolCall) *toolv1.ToolReview {
	return func(c *toolv1.ToolCall) *toolv1.ToolReview {
		return &toolv1.ToolReview{CallId: c.GetId(), Decision: decision, Error: err}
	}
}

// byKey returns the open intent that was asked for under a key.
func (l *lab) byKey(key string) *run.Intent {
	l.t.Helper()
	for _, i := range l.live.Open {
		if journal.ClientKey(i.Event) == key {
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

// A lost call from outside is the asker's to repeat; the agent does not wait.
func TestAnAskersCallThatIsLostIsOver(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.step(nothing, nil)
	l.step(asks([]*agentv1.EffectRequest{outsideModel("k")}), nil)
	lost := stoppedModel(l.byKey("k"))
	lost.Outcomes[0].GetModelOutcome().Error.Reason = "EFFECT_INDETERMINATE"
	lost.Key, lost.Wait = l.live.Key(l.byKey("k").Seq()), waits.ForDecision("a model call")
	assert.Equal(t, []string{"model_outcome"}, kinds(l.step(answers(lost), nil)))
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

// A tool call from outside is reviewed as the agent's own are, and is an effect beside them. What it changes in the
// store stays; the conversation does not get its result.
func TestAToolCallBeginsFromOutside(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.step(nothing, nil)
	l.step(answers(l.said(calling("c1"))), approved(false))
	own := l.live.Open[0]
	d := l.step(asks([]*agentv1.EffectRequest{outsideTool("k")}), approved(false))
	assert.Equal(t, []string{"command_received", "tool_intent"}, kinds(d))
	assert.Equal(t, []string{"effect/k"}, d.Took)
	intent := d.Entries[1].Event.GetToolIntent()
	assert.Equal(t, l.live.Key(d.Entries[1].Event.GetSeq()), intent.GetRequestId(), "the run's own key")
	assert.Equal(t, []string{"k", ""}, []string{intent.GetCallId(), intent.GetMessageId()})

	result := &toolv1.ToolResult{CallId: "k", StoreChanges: []*toolv1.StoreChange{{Key: "seen", ValueJson: new("1")}}, Content: chat.TextContent("rain")}
	assert.Equal(t, []string{"tool_outcome"}, kinds(l.step(answers(ended(l.byKey("k"), result)), nil)), "the agent is not asked")
	assert.Equal(t, "1", l.live.Store()["seen"])
	d = l.step(answers(ended(own, &toolv1.ToolResult{CallId: "c1", Content: chat.TextContent("sun")})), nil)
	assert.Equal(t, []string{"tool_outcome", "message_added", "model_intent"}, kinds(d))
	assert.Equal(t, "Start.|x|sun", conversation(l.live.Frame))
}

// While no review is to be had, the command stays in the inbox and holds up nothing; after a cancel it begins nothing.
func TestAToolCallFromOutsideWaitsForItsReview(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.step(nothing, nil)
	own := l.live.Open[0]
	d := l.step(func() decide.Facts {
		f := asks([]*agentv1.EffectRequest{outsideTool("k")})()
		f.Answers = answers(said(own, calling("c1")))().Answers
		return f
	}, nil)
	assert.True(t, d.Left)
	assert.Equal(t, []string{"model_outcome"}, kinds(d))
	d = l.step(asks([]*agentv1.EffectRequest{outsideTool("k")}), approved(false))
	assert.Equal(t, []string{"command_received", "tool_intent", "message_added", "tools_reviewed", "tool_intent"}, kinds(d))
	assert.False(t, d.Left)

	l = newLab(t)
	l.step(nothing, nil)
	d = l.step(asks([]*agentv1.EffectRequest{outsideTool("k")}, &agentv1.CancelRunRequest{}), approved(false))
	assert.Empty(t, only(d, "tool_intent"))
	assert.Equal(t, []string{"a", "effect/k"}, d.Took)
}

// A tool call from outside that may not begin has its outcome at once, which is the asker's: no failure ends the run.
func TestAToolCallFromOutsideThatMayNotBegin(t *testing.T) {
	t.Parallel()
	wrong := &toolv1.ToolCallError{Type: toolv1.ToolErrorType_TOOL_ERROR_TYPE_PARSING, Message: "there is no tool weather"}
	for what, c := range map[string]struct {
		review func(*toolv1.ToolCall) *toolv1.ToolReview
		want   string
	}{
		"rejected":           {decided(toolv1.ReviewDecision_REVIEW_DECISION_REJECT, wrong), "there is no tool weather"},
		"the agent's own":    {decided(toolv1.ReviewDecision_REVIEW_DECISION_CALLER, nil), "INVALID_REQUEST"},
		"a question":         {decided(toolv1.ReviewDecision_REVIEW_DECISION_ASK, nil), "NOT_BUILT_YET"},
		"without a decision": {decided(toolv1.ReviewDecision_REVIEW_DECISION_UNSPECIFIED, nil), "INTERNAL"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			l.step(nothing, nil)
			own := l.live.Open[0]
			d := l.step(asks([]*agentv1.EffectRequest{outsideTool("k")}), c.review)
			assert.Equal(t, []string{"command_received", "tool_intent", "tool_outcome"}, kinds(d))
			o := d.Entries[2].Event.GetToolOutcome()
			assert.Equal(t, d.Entries[1].Event.GetSeq(), o.GetIntent())
			assert.Equal(t, c.want, o.GetContent().GetResult().GetError().GetMessage()+o.GetFailure().GetReason())
			assert.Equal(t, []*run.Intent{own}, l.live.Open)
			assert.Equal(t, agentv1.RunState_RUN_STATE_SUCCEEDED, l.step(answers(said(own, assistant("own"))), nil).Finished.GetState())
		})
	}
	l := newLab(t)
	l.step(nothing, nil)
	d := l.step(asks([]*agentv1.EffectRequest{outsideTool("k")}), decided(toolv1.ReviewDecision_REVIEW_DECISION_TERMINATE, nil))
	assert.Equal(t, []string{"command_received", "limit_hit"}, kinds(d), "an approver ends the run, whoever asks")
	assert.True(t, d.Entries[0].Event.GetCommandReceived().GetOutdated())
}

// A review that fails for good is the failure of the call, and the run continues.
func TestAToolCallFromOutsideWhoseReviewFails(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.step(nothing, nil)
	own := l.live.Open[0]
	f := asks([]*agentv1.EffectRequest{outsideTool("k")})()
	f.Now, f.Replica, f.Epoch = began.Add(time.Minute), "local", 1
	d := decide.New(l.live, l.scorers, f)
	wanted, err := d.Decide()
	require.NoError(t, err)
	require.NotNil(t, wanted)
	assert.Equal(t, "effect/k", wanted.Key)
	wanted, err = d.Reviewed(nil, rpcerr.NotBuiltYet("approval by policy"))
	require.NoError(t, err)
	require.Nil(t, wanted)
	assert.Equal(t, []string{"command_received", "tool_intent", "tool_outcome"}, kinds(d))
	assert.Equal(t, "NOT_BUILT_YET", d.Entries[2].Event.GetToolOutcome().GetFailure().GetReason())
	assert.Len(t, d.Faults, 1)
	assert.Nil(t, l.live.Fault)
	assert.Equal(t, []*run.Intent{own}, l.live.Open)
}

// A failed call is the asker's. An operator stops one call by its id, and cuts it with the turn of its agent.
func TestToolCallsFromOutsideAreStopped(t *testing.T) {
	t.Parallel()
	begin := func() (l *lab, own, outside *run.Intent) {
		l = newLab(t)
		l.step(nothing, nil)
		own = l.live.Open[0]
		l.step(asks([]*agentv1.EffectRequest{outsideTool("k")}), approved(false))
		return l, own, l.byKey("k")
	}
	l, _, outside := begin()
	failure := &toolv1.ToolResult{CallId: "k", Failure: &toolv1.ToolFailure{Reason: "INTERNAL", Message: "bug"}}
	assert.Equal(t, []string{"tool_outcome"}, kinds(l.step(answers(ended(outside, failure)), nil)))

	l, own, outside := begin()
	d := l.step(commands(&agentv1.CancelCallRequest{CallId: "k", Index: new(int32(0))}), nil)
	assert.True(t, d.Entries[0].Event.GetCommandReceived().GetOutdated(), "it is in no message")
	l.step(commands(&agentv1.CancelCallRequest{CallId: "k"}), nil)
	assert.Equal(t, []bool{true, false}, []bool{l.live.Cuts(outside), l.live.Cuts(own)})
	d = l.step(answers(stoppedCall(outside)), nil)
	assert.True(t, d.Entries[0].Event.GetToolOutcome().GetInterrupted())
	assert.Equal(t, toolv1.ToolErrorType_TOOL_ERROR_TYPE_TIMEOUT, d.Entries[0].Event.GetToolOutcome().GetErrorType())

	l, own, outside = begin()
	l.step(commands(&agentv1.InterruptRunRequest{Messages: says("stop")}), nil)
	assert.True(t, l.live.Cuts(own) && l.live.Cuts(outside))
	d = l.step(answers(stoppedCall(outside), stoppedModel(own)), nil)
	assert.Equal(t, []string{"tool_outcome", "model_outcome", "message_added", "model_intent"}, kinds(d))

	l, own, outside = begin()
	l.step(answers(said(own, assistant("own"))), nil)
	assert.True(t, l.live.Cuts(outside), "an agent that is done ends what was asked for on its behalf")
	d = l.step(answers(stoppedCall(outside)), nil)
	assert.Equal(t, agentv1.RunState_RUN_STATE_SUCCEEDED, d.Finished.GetState())
}
