package server_test

import (
	"context"
	"io"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/fleettest"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/run"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/servicetest"
)

func TestACancelEndsARun(t *testing.T) {
	t.Parallel()
	for mode, want := range map[string]agentv1.RunState{
		"": agentv1.RunState_RUN_STATE_CANCELLED, "cancel": agentv1.RunState_RUN_STATE_CANCELLED,
		"score": agentv1.RunState_RUN_STATE_SUCCEEDED, "error": agentv1.RunState_RUN_STATE_FAILED,
	} {
		t.Run("mode "+mode, func(t *testing.T) {
			t.Parallel()
			r := serve(t)
			asked := r.hang()
			name := r.create(answering())
			waittest.For(t, asked, "the model call of the run")
			request := &agentv1.CancelRunRequest{Name: name, Mode: agentv1.CancelMode(agentv1.CancelMode_value["CANCEL_MODE_"+strings.ToUpper(mode)]), Reason: "enough", RequestId: "k"}
			_, err := r.runs.CancelRun(t.Context(), request)
			require.NoError(t, err)
			_, err = r.watch(&agentv1.WatchRunRequest{Name: name})
			require.NoError(t, err)
			state := r.State(name)
			assert.Empty(t, state.Open)
			assert.True(t, state.Cancel.Acknowledged)
			again, err := r.runs.CancelRun(t.Context(), request)
			require.NoError(t, err, "a run that has ended is cancelled with success")
			assert.Equal(t, want, again.GetState())
			commands := 0
			for e, err := range r.Events(name) {
				require.NoError(t, err)
				if e.GetCommandReceived() != nil {
					commands++
					assert.Equal(t, "user:ada", e.GetActor())
				}
			}
			assert.Equal(t, 1, commands)
		})
	}
}

// A call whose service does not answer a cancel, such as an unreachable one, delays the end of a run but not the
// response to its cancel, which is journaled by then and shown.
func TestACancelIsAnsweredWhileACallDoesNotEnd(t *testing.T) {
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
	answer, err := r.runs.CancelRun(waittest.Context(t), &agentv1.CancelRunRequest{Name: name})
	require.NoError(t, err)
	assert.True(t, answer.GetCancelling())
	shown, err := r.runs.GetRun(t.Context(), &agentv1.GetRunRequest{Name: name})
	require.NoError(t, err)
	assert.True(t, shown.GetCancelling(), "who looks sees it")
	assert.Equal(t, agentv1.RunState_RUN_STATE_RUNNING, shown.GetState())
	close(end)
	_, err = r.watch(&agentv1.WatchRunRequest{Name: name})
	require.NoError(t, err)
	ended, err := r.runs.GetRun(t.Context(), &agentv1.GetRunRequest{Name: name})
	require.NoError(t, err)
	assert.False(t, ended.GetCancelling())
	assert.Equal(t, agentv1.RunState_RUN_STATE_CANCELLED, ended.GetState())
}

// reading counts the events that the service reads.
type reading struct {
	journal.Store
	events atomic.Int64
}

func (r *reading) Read(ctx context.Context, ref journal.Ref, page journal.Range) ([]*agentv1.Event, error) {
	events, err := r.Store.Read(ctx, ref, page)
	r.events.Add(int64(len(events)))
	return events, err
}

// A command costs one reading of the journal, however often it wakes who waits for it.
func TestACommandReadsEachEventOnce(t *testing.T) {
	t.Parallel()
	r := serve(t)
	asked := r.hang()
	name := r.create(answering())
	waittest.For(t, asked, "the model call of the run")
	read := &reading{Store: r.Store}
	runs := r.over(read, io.Discard)
	cancelled, err := runs.CancelRun(t.Context(), &agentv1.CancelRunRequest{Name: name})
	require.NoError(t, err)
	assert.LessOrEqual(t, read.events.Load(), cancelled.GetHead())
}

func TestCancelsAreChecked(t *testing.T) {
	t.Parallel()
	r := serve(t)
	name := r.finished(answering())
	_, err := r.runs.CancelRun(t.Context(), &agentv1.CancelRunRequest{Name: name, Mode: 9})
	assert.Equal(t, codes.InvalidArgument, rpcerr.Code(err))
	_, err = r.runs.CancelRun(t.Context(), &agentv1.CancelRunRequest{Name: project + "/runs/none"})
	assert.Equal(t, codes.NotFound, rpcerr.Code(err))
}

// The etag of a run at work changes with its limits, and not with each event, so that an update may follow a read.
func TestAnUpdateOfLimitsOutlivesTheEventsOfARun(t *testing.T) {
	t.Parallel()
	r := serve(t)
	asked := r.hang()
	name := r.create(answering())
	waittest.For(t, asked, "the model call of the run")
	read, err := r.runs.GetRun(t.Context(), &agentv1.GetRunRequest{Name: name})
	require.NoError(t, err)
	for range 3 {
		_, err = r.runs.PostMessage(t.Context(), &agentv1.PostMessageRequest{Name: name, Text: "be brief"})
		require.NoError(t, err)
	}
	later, err := r.runs.GetRun(t.Context(), &agentv1.GetRunRequest{Name: name})
	require.NoError(t, err)
	require.Greater(t, later.GetHead(), read.GetHead())
	first := &agentv1.RetuneLimitsRequest{Name: name, Limits: &agentv1.RunLimits{Turns: new(int32(7))}, Etag: read.GetEtag()}
	retuned, err := r.runs.RetuneLimits(t.Context(), first)
	require.NoError(t, err)
	list, err := r.runs.ListRuns(t.Context(), &agentv1.ListRunsRequest{Parent: project})
	require.NoError(t, err)
	assert.Equal(t, retuned.GetEtag(), list.GetRuns()[0].GetEtag(), "a list has it at once")

	second := &agentv1.RetuneLimitsRequest{Name: name, Limits: &agentv1.RunLimits{Turns: new(int32(8))}, Etag: read.GetEtag(), RequestId: "second"}
	_, err = r.runs.RetuneLimits(t.Context(), second)
	assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_ETAG_MISMATCH), "%v", err)
	_, err = r.runs.RetuneLimits(t.Context(), &agentv1.RetuneLimitsRequest{Name: name, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"turns"}}})
	require.NoError(t, err, "the limits are again as they were read")
	_, err = r.runs.RetuneLimits(t.Context(), second)
	assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_ETAG_MISMATCH), "the same call has the same answer: %v", err)
	second.RequestId = "third"
	_, err = r.runs.RetuneLimits(t.Context(), second)
	require.NoError(t, err)
	_, err = r.runs.CancelRun(t.Context(), &agentv1.CancelRunRequest{Name: name})
	require.NoError(t, err)
}

// TestSteering holds a run between two turns, gives it a message and a new limit, and resumes it.
func TestSteering(t *testing.T) {
	t.Parallel()
	r := serve(t)
	asked, answer := make(chan struct{}, 1), make(chan struct{})
	r.Models.Answer = func(_ context.Context, q *modelv1.GenerateRequest) (*modelv1.ModelOutput, error) {
		if q.GetAttribution().GetTurn() == 1 {
			asked <- struct{}{}
			waittest.Hold(t, answer)
			return servicetest.Say("going", &toolv1.ToolCall{Id: "c1", Function: "noop", ArgumentsJson: "{}"}), nil
		}
		return servicetest.Say("done"), nil
	}
	r.Tools.Tools["noop"] = servicetest.Tool{Run: func(context.Context, servicetest.Call) (*toolv1.ToolResult, error) {
		return servicetest.Text("ok"), nil
	}}
	spec := answering()
	spec.Tools = []*toolv1.ToolRef{{Name: "noop"}}
	name := r.create(spec)
	waittest.For(t, asked, "the model call of the run")

	_, err := r.runs.HoldRun(t.Context(), &agentv1.HoldRunRequest{Name: name, Reason: "wait"})
	require.NoError(t, err)
	posted, err := r.runs.PostMessage(t.Context(), &agentv1.PostMessageRequest{Name: name, Messages: []*modelv1.ChatMessage{fleettest.User("be brief")}})
	require.NoError(t, err)
	assert.Positive(t, posted.GetSeq())
	short := &agentv1.PostMessageRequest{Name: name, Text: "and quick", RequestId: "short"}
	first, err := r.runs.PostMessage(t.Context(), short)
	require.NoError(t, err)
	again, err := r.runs.PostMessage(t.Context(), short)
	require.NoError(t, err, "the same key is the same message")
	assert.Equal(t, first.GetSeq(), again.GetSeq())
	_, err = r.runs.PostMessage(t.Context(), &agentv1.PostMessageRequest{Name: name, Text: "and slow", RequestId: "short"})
	assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_REQUEST_ID_REUSED), "%v", err)
	retuned, err := r.runs.RetuneLimits(t.Context(), &agentv1.RetuneLimitsRequest{Name: name, Limits: &agentv1.RunLimits{Turns: new(int32(7)), Messages: new(int32(90))}})
	require.NoError(t, err)
	assert.Equal(t, []int32{7, 90}, []int32{retuned.GetLimits().GetTurns(), retuned.GetLimits().GetMessages()})
	assert.Equal(t, int32(1), retuned.GetUsed().GetMessages())
	assert.NotNil(t, retuned.GetUsed().GetTime())
	lift := &agentv1.RetuneLimitsRequest{Name: name, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"messages"}}, Etag: "1", RequestId: "lift"}
	for range 2 {
		_, err = r.runs.RetuneLimits(t.Context(), lift)
		assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_ETAG_MISMATCH), "%v", err)
	}
	now, err := r.runs.GetRun(t.Context(), &agentv1.GetRunRequest{Name: name})
	require.NoError(t, err)
	assert.Equal(t, int32(90), now.GetLimits().GetMessages(), "a command of another state changes nothing")
	lift.Etag, lift.RequestId = now.GetEtag(), "again"
	retuned, err = r.runs.RetuneLimits(t.Context(), lift)
	require.NoError(t, err)
	assert.Nil(t, retuned.GetLimits().Messages)
	assert.Equal(t, int32(7), retuned.GetLimits().GetTurns())
	_, err = r.runs.RetuneLimits(t.Context(), &agentv1.RetuneLimitsRequest{Name: name})
	require.ErrorContains(t, err, "nothing is to be changed")
	close(answer)
	r.Until(name, func(s *run.State) bool { return s.Phase == agentv1.RunState_RUN_STATE_WAITING })
	held, err := r.runs.GetRun(t.Context(), &agentv1.GetRunRequest{Name: name})
	require.NoError(t, err)
	assert.Equal(t, agentv1.WaitReason_WAIT_REASON_HOLD, held.GetWait().GetReason())
	for reason, want := range map[agentv1.WaitReason][]string{agentv1.WaitReason_WAIT_REASON_HOLD: {name}, agentv1.WaitReason_WAIT_REASON_WORKER: nil} {
		waiting, err := r.runs.ListRuns(t.Context(), &agentv1.ListRunsRequest{Parent: project, WaitingFor: reason})
		require.NoError(t, err)
		var names []string
		for _, one := range waiting.GetRuns() {
			names = append(names, one.GetName())
		}
		assert.Equal(t, want, names, reason)
	}
	_, err = r.runs.ResumeRun(t.Context(), &agentv1.ResumeRunRequest{Name: name})
	require.NoError(t, err)
	_, err = r.watch(&agentv1.WatchRunRequest{Name: name})
	require.NoError(t, err)
	state := r.State(name)
	assert.Equal(t, []string{"U:the question", "A:going", "T:ok", "U:be brief\n\nand quick", "A:done"}, fleettest.Texts(state.Messages()))
	assert.Equal(t, int32(7), state.Limits.Bounds().GetTurns())
	ended, err := r.runs.GetRun(t.Context(), &agentv1.GetRunRequest{Name: name})
	require.NoError(t, err)
	used := ended.GetUsed()
	assert.Equal(t, []int32{5, 2}, []int32{used.GetMessages(), used.GetTurns()})
	assert.Equal(t, ended.GetWorkingTime().AsDuration(), used.GetWorkingTime().AsDuration())
	assert.GreaterOrEqual(t, used.GetTime().AsDuration(), used.GetWorkingTime().AsDuration())
}

// lateStore answers the first question whether a command was taken with no, after the time of its answer.
type lateStore struct {
	journal.Store
	meanwhile func()
}

func (s *lateStore) Taken(ctx context.Context, name, id string) (int64, error) {
	if s.meanwhile != nil {
		s.meanwhile()
		s.meanwhile = nil
		return 0, nil
	}
	return s.Store.Taken(ctx, name, id)
}

// TestACommandThatARunTookBeforeItsEndIsAnswered: the run takes the command and ends while the command is waited for,
// and again when the request is repeated after that.
func TestACommandThatARunTookBeforeItsEndIsAnswered(t *testing.T) {
	t.Parallel()
	r := serve(t)
	asked, answer := make(chan struct{}, 1), make(chan struct{})
	r.Models.Answer = func(context.Context, *modelv1.GenerateRequest) (*modelv1.ModelOutput, error) {
		asked <- struct{}{}
		waittest.Hold(t, answer)
		return servicetest.Say("done"), nil
	}
	name := r.create(answering())
	waittest.For(t, asked, "the model call of the run")
	late := &lateStore{Store: r.Store, meanwhile: func() {
		r.Until(name, func(s *run.State) bool { return s.Limits.Bounds().GetTurns() == 7 })
		close(answer)
		r.Until(name, func(s *run.State) bool { return s.Finished })
	}}
	runs := r.over(late, io.Discard)
	for range 2 {
		_, err := runs.RetuneLimits(t.Context(), &agentv1.RetuneLimitsRequest{Name: name, RequestId: "k", Limits: &agentv1.RunLimits{Turns: new(int32(7))}})
		require.NoError(t, err)
	}
	_, err := runs.RetuneLimits(t.Context(), &agentv1.RetuneLimitsRequest{Name: name, RequestId: "another", Limits: &agentv1.RunLimits{Turns: new(int32(7))}})
	assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_RUN_FINISHED), "%v", err)
}

func TestARunThatHasEndedTakesNoCommands(t *testing.T) {
	t.Parallel()
	r := serve(t)
	name := r.finished(answering())
	message := []*modelv1.ChatMessage{fleettest.User("hello")}
	for what, do := range map[string]func() error{
		"hold": func() error { _, err := r.runs.HoldRun(t.Context(), &agentv1.HoldRunRequest{Name: name}); return err },
		"resume": func() error {
			_, err := r.runs.ResumeRun(t.Context(), &agentv1.ResumeRunRequest{Name: name})
			return err
		},
		"post": func() error {
			_, err := r.runs.PostMessage(t.Context(), &agentv1.PostMessageRequest{Name: name, Messages: message})
			return err
		},
		"retune": func() error {
			_, err := r.runs.RetuneLimits(t.Context(), &agentv1.RetuneLimitsRequest{Name: name, Limits: &agentv1.RunLimits{Turns: new(int32(1))}})
			return err
		},
	} {
		assert.True(t, rpcerr.Is(do(), errorsv1.ErrorReason_ERROR_REASON_RUN_FINISHED), what)
	}
}

func TestCommandsAreChecked(t *testing.T) {
	t.Parallel()
	r := serve(t)
	name := r.finished(answering())
	_, err := r.runs.PostMessage(t.Context(), &agentv1.PostMessageRequest{Name: name})
	assert.Equal(t, codes.InvalidArgument, rpcerr.Code(err), "no message")
	_, err = r.runs.PostMessage(t.Context(), &agentv1.PostMessageRequest{Name: name, Messages: []*modelv1.ChatMessage{{Role: modelv1.Role_ROLE_SYSTEM}}})
	require.ErrorContains(t, err, "messages[0].role")
	_, err = r.runs.RetuneLimits(t.Context(), &agentv1.RetuneLimitsRequest{Name: name, Limits: &agentv1.RunLimits{Messages: new(int32(-1))}})
	require.ErrorContains(t, err, "messages")
}

// A message for an inactive agent is refused, and reaches no other agent.
func TestAMessageForNoAgentIsRefused(t *testing.T) {
	t.Parallel()
	r := serve(t)
	asked := r.hang()
	name := r.create(answering())
	waittest.For(t, asked, "the model call of the run")
	for range 2 { // A repeated request has the same answer.
		_, err := r.runs.PostMessage(t.Context(), &agentv1.PostMessageRequest{Name: name, Text: "hello", Span: "12", RequestId: "k"})
		e, ok := rpcerr.As(err)
		require.True(t, ok, err)
		assert.Equal(t, errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST, e.Reason)
		assert.Equal(t, "span", e.Fields[0].Path)
	}
	assert.Empty(t, r.State(name).Posted)
	_, err := r.runs.CancelRun(t.Context(), &agentv1.CancelRunRequest{Name: name})
	require.NoError(t, err)
}

func TestTheServerTellsAboutItself(t *testing.T) {
	t.Parallel()
	r := serve(t)
	info, err := r.admin.GetServerInfo(t.Context(), &agentv1.GetServerInfoRequest{})
	require.NoError(t, err)
	assert.Equal(t, []string{"agentorch", "gateway"}, info.GetServices())
	assert.Equal(t, "local", info.GetDefaultDriver())
	assert.Equal(t, "one", info.GetReplica())
	assert.Equal(t, started, info.GetStartTime().AsTime())
	assert.NotEmpty(t, info.GetVersion())
}

// A filter of a list by a value that no run can have would answer an empty list for ever.
func TestAListRefusesAFilterThatNothingMeets(t *testing.T) {
	t.Parallel()
	r := serve(t)
	_, err := r.runs.ListRuns(t.Context(), &agentv1.ListRunsRequest{Parent: project, WaitingFor: agentv1.WaitReason_WAIT_REASON_SERVICE})
	e, ok := rpcerr.As(err)
	require.True(t, ok, "%v", err)
	require.Len(t, e.Fields, 1)
	assert.Equal(t, "waiting_for", e.Fields[0].Path)
	assert.Contains(t, e.Fields[0].Description, "approval")
}
