package server_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/fleettest"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/run"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/servicetest"
)

// A turn is cut, and the call returns when the stopped effects have ended; the run waits for the operator and then
// continues.
func TestAnInterruptCutsATurn(t *testing.T) {
	t.Parallel()
	r := serve(t)
	asked := r.hang()
	name := r.create(answering())
	waittest.For(t, asked, "the model call of the run")
	request := &agentv1.InterruptRunRequest{Name: name, Reason: "too long", RequestId: "k"}
	cut, err := r.runs.InterruptRun(waittest.Context(t), request)
	require.NoError(t, err)
	assert.False(t, cut.GetInterrupting())
	assert.Empty(t, r.State(name).Open, "the call has ended")
	again, err := r.runs.InterruptRun(t.Context(), request)
	require.NoError(t, err)
	assert.Equal(t, cut.GetSeq(), again.GetSeq(), "the same key is the same command")
	page, err := r.runs.ListRunEvents(t.Context(), &agentv1.ListRunEventsRequest{Parent: name, AfterSeq: cut.GetSeq() - 1})
	require.NoError(t, err)
	assert.Equal(t, agentv1.CommandType_COMMAND_TYPE_INTERRUPT, page.GetEvents()[0].GetCommandReceived().GetType())
	assert.Equal(t, "too long", page.GetEvents()[0].GetCommandReceived().GetReason())
	r.Until(name, func(s *run.State) bool { return s.Wait.GetReason() == agentv1.WaitReason_WAIT_REASON_INPUT })

	r.Models.Answer = func(context.Context, *modelv1.GenerateRequest) (*modelv1.ModelOutput, error) {
		return servicetest.Say("done"), nil
	}
	_, err = r.runs.InterruptRun(t.Context(), &agentv1.InterruptRunRequest{Name: name, Text: "be brief"})
	require.NoError(t, err)
	state := r.Finish(name)
	assert.Equal(t, []string{"U:the question", "U:be brief", "A:done"}, fleettest.Texts(state.Messages()))
	assert.Equal(t, agentv1.RunState_RUN_STATE_SUCCEEDED, state.Phase)
	_, err = r.runs.InterruptRun(t.Context(), &agentv1.InterruptRunRequest{Name: name})
	assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_RUN_FINISHED), "%v", err)
}

// A call whose owner answers no cancel holds up the answer to an interrupt for a moment, and not for ever.
func TestAnInterruptIsAnsweredWhileACallDoesNotEnd(t *testing.T) {
	t.Parallel()
	r := serve(t)
	asked, end := make(chan struct{}, 1), make(chan struct{})
	r.Models.Answer = func(context.Context, *modelv1.GenerateRequest) (*modelv1.ModelOutput, error) {
		asked <- struct{}{}
		waittest.Hold(t, end)
		return servicetest.Say("late"), nil
	}
	name := r.create(answering())
	waittest.For(t, asked, "the model call of the run")
	answer, err := r.runs.InterruptRun(waittest.Context(t), &agentv1.InterruptRunRequest{Name: name})
	require.NoError(t, err)
	assert.True(t, answer.GetInterrupting())
	close(end)
	state := r.Until(name, func(s *run.State) bool { return s.Wait.GetReason() == agentv1.WaitReason_WAIT_REASON_INPUT })
	assert.Len(t, state.Messages(), 1, "a late answer is not taken")
}

// One of two calls with the same id is stopped, by its position; the other continues.
func TestOneCallIsCancelled(t *testing.T) {
	t.Parallel()
	r := serve(t)
	begun, end := make(chan struct{}, 2), make(chan struct{})
	r.Tools.Tools["slow"] = servicetest.Tool{Parallel: true, Run: func(ctx context.Context, _ servicetest.Call) (*toolv1.ToolResult, error) {
		begun <- struct{}{}
		select {
		case <-end:
			return servicetest.Text("ok"), nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}}
	slow := func(id string) *toolv1.ToolCall {
		return &toolv1.ToolCall{Id: id, Function: "slow", ArgumentsJson: "{}"}
	}
	r.Models.Answer = servicetest.ByTurn(servicetest.Says("go", slow("c1"), slow("c1")), servicetest.Says("done"))
	spec := answering()
	spec.Tools = []*toolv1.ToolRef{{Name: "slow"}}
	name := r.create(spec)
	for range 2 {
		waittest.For(t, begun, "a call of the tool")
	}
	_, err := r.runs.CancelCall(t.Context(), &agentv1.CancelCallRequest{Name: name, CallId: "c2"})
	assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_CALL_NOT_OPEN), "%v", err)
	cancelled, err := r.runs.CancelCall(waittest.Context(t), &agentv1.CancelCallRequest{Name: name, CallId: "c1", Index: new(int32(1)), RequestId: "k"})
	require.NoError(t, err)
	assert.False(t, cancelled.GetCancelling())
	assert.Len(t, r.State(name).Open, 1, "the other goes on")
	close(end)
	assert.Equal(t, []string{"U:the question", "A:go", "T:ok", "T:!timeout", "A:done"}, fleettest.Texts(r.Finish(name).Messages()))
	again, err := r.runs.CancelCall(t.Context(), &agentv1.CancelCallRequest{Name: name, CallId: "c1", Index: new(int32(1)), RequestId: "k"})
	require.NoError(t, err, "a command that was taken is answered again")
	assert.Equal(t, cancelled.GetSeq(), again.GetSeq())
}

func TestInterruptsAreChecked(t *testing.T) {
	t.Parallel()
	r := serve(t)
	asked := r.hang()
	name := r.create(answering())
	waittest.For(t, asked, "the model call of the run")
	_, err := r.runs.InterruptRun(t.Context(), &agentv1.InterruptRunRequest{Name: name, Span: "99"})
	e, ok := rpcerr.As(err)
	require.True(t, ok, "%v", err)
	require.Len(t, e.Fields, 1)
	assert.Equal(t, "span", e.Fields[0].Path)
	_, err = r.runs.InterruptRun(t.Context(), &agentv1.InterruptRunRequest{Name: name, Messages: []*modelv1.ChatMessage{{Role: modelv1.Role_ROLE_SYSTEM}}})
	require.ErrorContains(t, err, "messages[0].role")
	_, err = r.runs.InterruptRun(t.Context(), &agentv1.InterruptRunRequest{Name: project + "/runs/none"})
	assert.Equal(t, codes.NotFound, rpcerr.Code(err))
	_, err = r.runs.CancelCall(t.Context(), &agentv1.CancelCallRequest{Name: name})
	require.ErrorContains(t, err, "call_id")
	_, err = r.runs.CancelRun(t.Context(), &agentv1.CancelRunRequest{Name: name})
	require.NoError(t, err)
	r.Finish(name)
}
