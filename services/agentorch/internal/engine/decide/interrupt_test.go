package decide_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/enum"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/agent/react"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/engine/decide"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/engine/inbox"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/engine/waits"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/fleettest"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/run"
)

// commands are those of an operator, with their places as ids.
func commands(requests ...proto.Message) func() decide.Facts {
	return func() decide.Facts {
		var f decide.Facts
		for i, r := range requests {
			f.Commands = append(f.Commands, inbox.Command{ID: string(rune('a' + i)), Principal: "user:ada", Request: proto.Clone(r)})
		}
		return f
	}
}

func says(text string) []*modelv1.ChatMessage { return []*modelv1.ChatMessage{chat.User(text)} }

// stoppedModel is what comes of a model call that its owner stopped.
func stoppedModel(i *run.Intent) decide.Answer {
	outcome := &agentv1.ModelOutcome{Intent: i.Seq(), Error: &agentv1.RunError{Reason: "EFFECT_CANCELLED", Message: "it was cancelled"}}
	return decide.Answer{Outcomes: []*agentv1.Event{run.NewEvent(outcome)}}
}

func ended(i *run.Intent, result *toolv1.ToolResult) decide.Answer {
	return decide.Answer{Outcomes: []*agentv1.Event{run.ToolOutcome(i.Event, result)}}
}

// stoppedCall is what comes of a tool call that its owner stopped.
func stoppedCall(i *run.Intent) decide.Answer {
	return ended(i, &toolv1.ToolResult{Error: &toolv1.ToolCallError{Type: toolv1.ToolErrorType_TOOL_ERROR_TYPE_CANCELLED, Message: "stopped"}})
}

func approved(parallel bool) func(*toolv1.ToolCall) *toolv1.ToolReview {
	return func(c *toolv1.ToolCall) *toolv1.ToolReview {
		return &toolv1.ToolReview{CallId: c.GetId(), Call: c, Decision: toolv1.ReviewDecision_REVIEW_DECISION_RUN, Parallel: parallel}
	}
}

func calling(ids ...string) *modelv1.ChatMessage {
	m := &modelv1.ChatMessage{Content: chat.TextContent("x")}
	for _, id := range ids {
		m.ToolCalls = append(m.ToolCalls, chat.Call(id, "weather", `{}`))
	}
	return m
}

func only(d *decide.Step, kind string) (found []*agentv1.Event) {
	for i, k := range kinds(d) {
		if k == kind {
			found = append(found, d.Entries[i].Event)
		}
	}
	return found
}

// A model call that an operator cuts neither fails nor answers anything; the agent waits for the operator's message.
func TestAModelCallThatIsCutIsAnOutcome(t *testing.T) {
	t.Parallel()
	for what, late := range map[string]bool{"stopped": false, "answered too late": true} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			l.step(nothing, nil)
			call := l.live.Open[0]
			d := l.step(commands(&agentv1.InterruptRunRequest{Reason: "enough"}), nil)
			assert.Equal(t, []string{"command_received", "interrupted"}, kinds(d))
			cut := d.Entries[1].Event
			assert.Equal(t, "user:ada", cut.GetActor())
			assert.Equal(t, []string{"user_cancel", "generate"}, []string{enum.Word(cut.GetInterrupted().GetSource()), enum.Word(cut.GetInterrupted().GetInterrupted())})
			assert.Equal(t, call.Seq(), cut.GetInterrupted().GetIntent())
			assert.True(t, l.live.Cuts(call), "its owner is to stop it")

			came := stoppedModel(call)
			if late {
				came = said(call, assistant("late"))
				came.Outcomes[0].GetModelOutcome().Usage = &modelv1.ModelUsage{TotalTokens: 7}
			}
			d = l.step(answers(came), nil)
			assert.Equal(t, []string{"model_outcome", "wait_changed"}, kinds(d))
			assert.True(t, d.Entries[0].Event.GetModelOutcome().GetInterrupted())
			assert.Nil(t, d.Entries[0].Event.GetModelOutcome().GetError())
			assert.Equal(t, waits.Input, l.live.Wait.GetReason())
			assert.Equal(t, "Start.", conversation(l.live.Frame), "no answer, and no part of one")
			assert.Zero(t, l.live.Turns)
			if late {
				assert.Equal(t, int64(7), l.live.Total.GetTotalTokens(), "what it cost counts")
			}

			d = l.step(commands(&agentv1.PostMessageRequest{Messages: says("be brief")}), nil)
			assert.Equal(t, []string{"command_received", "wait_changed", "message_added", "model_intent"}, kinds(d))
			d = l.step(answers(l.said(assistant("Hello."))), nil)
			assert.Equal(t, agentv1.RunState_RUN_STATE_SUCCEEDED, d.Finished.GetState())
			assert.Equal(t, "Start.|be brief|Hello.", conversation(l.live.Frame))
		})
	}
}

// A turn is cut with all its calls: running calls are stopped, no other begins, and the model sees all as cancelled
// once the operator has decided how to continue.
func TestATurnIsCutWithItsCalls(t *testing.T) {
	t.Parallel()
	for agentName, l := range map[string]*lab{"generate": newLab(t), "react": newLab(t, react.Definition())} {
		t.Run(agentName, func(t *testing.T) {
			t.Parallel()
			l.step(nothing, nil)
			l.step(answers(l.said(calling("c1", "c2"))), approved(false))
			require.Len(t, l.live.Open, 1, "one after the other")
			c1 := l.live.Open[0]
			d := l.step(commands(&agentv1.InterruptRunRequest{}), nil)
			assert.Equal(t, []string{"tool_call", "c1"}, []string{enum.Word(d.Entries[1].Event.GetInterrupted().GetInterrupted()), d.Entries[1].Event.GetInterrupted().GetCallId()})
			d = l.step(answers(ended(c1, &toolv1.ToolResult{Failure: &toolv1.ToolFailure{Reason: "EFFECT_CANCELLED"}})), nil)
			assert.Equal(t, []string{"tool_outcome", "wait_changed"}, kinds(d))
			outcome := d.Entries[0].Event.GetToolOutcome()
			assert.True(t, outcome.GetInterrupted())
			assert.Nil(t, outcome.GetFailure())
			assert.Nil(t, outcome.GetContent().GetResult().GetFailure())
			assert.Equal(t, toolv1.ToolErrorType_TOOL_ERROR_TYPE_CANCELLED, outcome.GetErrorType())

			d = l.step(commands(&agentv1.PostMessageRequest{Messages: says("stop that")}), nil)
			assert.Equal(t, []string{"command_received", "wait_changed", "message_added", "message_added", "message_added", "model_intent"}, kinds(d))
			texts := fleettest.Texts(l.live.Messages())
			assert.Equal(t, []string{
				"A:x", "T:the call was cancelled by the user!cancelled", "T:the call was cancelled by the user!cancelled", "U:stop that",
			}, texts[len(texts)-4:])
			assert.Nil(t, l.live.Calls)
		})
	}
}

// The agent continues with the messages of an interrupt.
func TestAnInterruptMayBringMessages(t *testing.T) {
	t.Parallel()
	l := newLab(t, react.Definition())
	l.step(nothing, nil)
	l.step(commands(&agentv1.InterruptRunRequest{Messages: says("be brief")}), nil)
	d := l.step(answers(stoppedModel(l.live.Open[0])), nil)
	assert.Equal(t, []string{"model_outcome", "message_added", "model_intent"}, kinds(d))
	assert.Equal(t, modelv1.MessageSource_MESSAGE_SOURCE_OPERATOR, d.Entries[1].Event.GetMessageAdded().GetContent().GetSource())
}

// Between turns an interrupt only delivers its messages.
func TestBetweenTurnsNothingIsCut(t *testing.T) {
	t.Parallel()
	l := newLab(t, react.Definition())
	l.step(nothing, nil)
	l.step(commands(&agentv1.InterruptRunRequest{}), nil)
	l.step(answers(stoppedModel(l.live.Open[0])), nil)
	require.Equal(t, waits.Input, l.live.Wait.GetReason())
	d := l.step(commands(&agentv1.InterruptRunRequest{}), nil)
	assert.Equal(t, agentv1.InterruptedWork_INTERRUPTED_WORK_BETWEEN_TURNS, d.Entries[1].Event.GetInterrupted().GetInterrupted())
	assert.Equal(t, waits.Input, l.live.Wait.GetReason(), "it waits still")
	d = l.step(commands(&agentv1.InterruptRunRequest{Messages: says("go on")}), nil)
	assert.Equal(t, "model_intent", kinds(d)[len(d.Entries)-1])
}

// A call that waits for capacity is cut as one that runs, and so is the wait of an agent that would ask again.
func TestAWaitIsCut(t *testing.T) {
	t.Parallel()
	wait := &agentv1.RunWait{Reason: waits.Capacity, RetryTime: timestamppb.New(began.Add(time.Hour))}
	l := newLab(t)
	l.step(nothing, nil)
	l.step(answers(decide.Answer{Key: l.live.Key(l.live.Open[0].Seq()), Wait: wait}), nil)
	require.Equal(t, agentv1.RunState_RUN_STATE_WAITING, l.live.Phase)
	l.step(commands(&agentv1.InterruptRunRequest{}), nil)
	assert.Nil(t, l.live.Open[0].Wait, "its owner is told never to begin it")
	l.step(answers(stoppedModel(l.live.Open[0])), nil)
	assert.Equal(t, waits.Input, l.live.Wait.GetReason())

	l = newLab(t)
	l.step(nothing, nil)
	lost := stoppedModel(l.live.Open[0])
	lost.Outcomes[0].GetModelOutcome().Error.Reason = "EFFECT_INDETERMINATE"
	lost.Key, lost.Wait = l.live.Key(l.live.Open[0].Seq()), waits.ForDecision("a model call")
	l.step(answers(lost), nil)
	require.Equal(t, waits.Decision, l.live.Frame.Wait.GetReason())
	d := l.step(commands(&agentv1.InterruptRunRequest{}), nil)
	assert.Equal(t, agentv1.InterruptedWork_INTERRUPTED_WORK_GENERATE, d.Entries[1].Event.GetInterrupted().GetInterrupted())
	assert.Equal(t, waits.Input, l.live.Wait.GetReason())
}

// Agents that an interrupted agent has set to work end as interrupted; it is asked when all of them have.
func TestTheChildrenOfAnInterruptedAgentEnd(t *testing.T) {
	t.Parallel()
	l := newLab(t, delegates(nil, "one", "two"))
	l.step(nothing, nil)
	one, two := l.modelCall("one"), l.modelCall("two")
	l.step(commands(&agentv1.InterruptRunRequest{}), nil)
	assert.True(t, l.live.Cuts(one) && l.live.Cuts(two))
	d := l.step(answers(stoppedModel(one)), nil)
	assert.Equal(t, []string{"model_outcome", "agent_ended"}, kinds(d), "the agent is not asked while something of its turn is under way")
	d = l.step(answers(said(two, assistant("late"))), nil)
	assert.True(t, only(d, "agent_ended")[0].GetAgentEnded().GetInterrupted())
	assert.Len(t, l.live.Frames(), 1)
	assert.Equal(t, agentv1.RunState_RUN_STATE_SUCCEEDED, d.Finished.GetState(), "no failure of the run")
}

// The turn of one agent is cut by its span, and the agent continues with the message for it; its parent and the others
// continue.
func TestOneAgentIsInterrupted(t *testing.T) {
	t.Parallel()
	l := newLab(t, delegates(nil, "one", "two"))
	l.step(nothing, nil)
	one, two := l.modelCall("one"), l.modelCall("two")
	d := l.step(commands(&agentv1.InterruptRunRequest{Span: "none"}), nil)
	assert.Equal(t, []string{"command_received"}, kinds(d))
	assert.True(t, d.Entries[0].Event.GetCommandReceived().GetOutdated(), "no such agent is at work")
	l.step(commands(&agentv1.InterruptRunRequest{Span: one.Frame.Span}), nil)
	assert.True(t, l.live.Cuts(one))
	assert.False(t, l.live.Cuts(two))
	l.step(answers(stoppedModel(one)), nil)
	assert.Equal(t, waits.Input, one.Frame.Wait.GetReason())
	l.step(commands(&agentv1.PostMessageRequest{Span: one.Frame.Span, Messages: says("go on")}), nil)
	l.step(answers(said(l.modelCall("one"), assistant("first"))), nil)
	d = l.step(answers(said(two, assistant("second"))), nil)
	assert.Equal(t, agentv1.RunState_RUN_STATE_SUCCEEDED, d.Finished.GetState())
	assert.Equal(t, "Start.|first|second", conversation(l.live.Frame))
}

// What a child's bound stops is an outcome of the child, and no failure of the run.
func TestWhatABoundOfAChildStopsIsInterrupted(t *testing.T) {
	t.Parallel()
	l := newLab(t, delegates(&agentv1.RunLimits{Time: durationpb.New(time.Second)}, "one"))
	l.step(nothing, nil)
	call := l.modelCall("one")
	l.step(nothing, nil)
	d := l.step(answers(stoppedModel(call)), nil)
	assert.True(t, d.Entries[0].Event.GetModelOutcome().GetInterrupted())
	assert.Equal(t, agentv1.RunState_RUN_STATE_SUCCEEDED, d.Finished.GetState())
	assert.Equal(t, "Start.|limit time", conversation(l.live.Frame))
}

// One call of several is stopped: the model sees a time-out, and the others continue.
func TestOneCallIsStopped(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.step(nothing, nil)
	l.step(answers(l.said(calling("c1", "c1"))), approved(true))
	require.Len(t, l.live.Open, 2, "side by side")
	first, second := l.live.Open[0], l.live.Open[1]
	d := l.step(commands(&agentv1.CancelCallRequest{CallId: "c1", Index: new(int32(1))}), nil)
	assert.Equal(t, second.Seq(), d.Entries[0].Event.GetCommandReceived().GetIntent())
	assert.False(t, l.live.Cuts(first))
	assert.True(t, l.live.Cuts(second))
	d = l.step(answers(stoppedCall(second)), nil)
	outcome := d.Entries[0].Event.GetToolOutcome()
	assert.True(t, outcome.GetInterrupted())
	assert.Equal(t, toolv1.ToolErrorType_TOOL_ERROR_TYPE_TIMEOUT, outcome.GetErrorType())
	assert.Equal(t, []string{"weather was stopped by an operator"}, outcome.GetContent().GetResult().GetNotes())
	l.step(answers(ended(first, &toolv1.ToolResult{Content: chat.TextContent("rain")})), nil)
	texts := fleettest.Texts(l.live.Messages())
	assert.Equal(t, []string{"T:rain", "T:!timeout"}, texts[len(texts)-2:])
	assert.NotNil(t, l.live.Open[0].Event.GetModelIntent(), "the turn goes on")
}

// What does not run cannot be stopped, and what ended before it could be stopped has its own result.
func TestACallThatDoesNotRunIsNotStopped(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.step(nothing, nil)
	none := func(r *agentv1.CancelCallRequest) {
		t.Helper()
		d := l.step(commands(r), nil)
		assert.True(t, d.Entries[0].Event.GetCommandReceived().GetOutdated())
	}
	none(&agentv1.CancelCallRequest{CallId: "c1"})
	l.step(answers(l.said(calling("c1", "c2"))), approved(false))
	none(&agentv1.CancelCallRequest{CallId: "c2"}) // it has not begun
	none(&agentv1.CancelCallRequest{CallId: "c1", Index: new(int32(1))})
	none(&agentv1.CancelCallRequest{CallId: "c1", Span: "9"})
	c1 := l.live.Open[0]
	l.step(commands(&agentv1.CancelCallRequest{CallId: "c1"}), nil)
	assert.True(t, l.live.Cuts(c1))
	d := l.step(answers(ended(c1, &toolv1.ToolResult{Content: chat.TextContent("rain")})), nil)
	assert.False(t, d.Entries[0].Event.GetToolOutcome().GetInterrupted())
	assert.Equal(t, toolv1.ToolErrorType_TOOL_ERROR_TYPE_UNSPECIFIED, d.Entries[0].Event.GetToolOutcome().GetErrorType())
}

// A cancel after an interrupt ends the run as ever.
func TestAnInterruptedRunIsCancelled(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.step(nothing, nil)
	l.step(commands(&agentv1.InterruptRunRequest{}), nil)
	l.step(commands(&agentv1.CancelRunRequest{}), nil)
	d := l.step(answers(stoppedModel(l.live.Open[0])), nil)
	assert.Equal(t, agentv1.RunState_RUN_STATE_CANCELLED, d.Finished.GetState())
}
