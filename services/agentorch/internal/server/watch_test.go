package server_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/durationpb"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	effectv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/effect/v1"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/progress"
)

func TestAWatchIsTheJournal(t *testing.T) {
	t.Parallel()
	r := serve(t)
	name := r.create(answering())
	all, err := r.watch(&agentv1.WatchRunRequest{Name: name, Content: true})
	require.NoError(t, err)
	for i, one := range all {
		assert.Equal(t, int64(i+1), one.GetEvent().GetSeq(), "every event, once, in order")
	}
	assert.NotNil(t, all[0].GetEvent().GetRunCreated())
	assert.NotNil(t, all[len(all)-1].GetEvent().GetRunFinished(), "a watch ends with its run")

	for i, one := range all {
		rest, err := r.watch(&agentv1.WatchRunRequest{Name: name, Content: true, Cursor: one.GetCursor()})
		require.NoError(t, err)
		assert.Len(t, rest, len(all)-1-i, "a cursor goes on behind its event, also at the end")
	}
	bare, err := r.watch(&agentv1.WatchRunRequest{Name: name})
	require.NoError(t, err)
	require.Len(t, bare, len(all))
	for i, one := range bare {
		text, err := protojson.Marshal(one)
		require.NoError(t, err)
		assert.NotContains(t, string(text), "the answer")
		assert.NotContains(t, string(text), "the question")
		assert.IsType(t, all[i].GetEvent().GetKind(), one.GetEvent().GetKind())
	}
}

func TestAWatchFollowsARunAtWork(t *testing.T) {
	t.Parallel()
	r := serve(t)
	asked := r.hang()
	name := r.create(answering())
	waittest.For(t, asked, "the model call of the run")
	stream, err := r.runs.WatchRun(waittest.Context(t), &agentv1.WatchRunRequest{Name: name})
	require.NoError(t, err)
	for {
		one, err := stream.Recv()
		require.NoError(t, err)
		if one.GetEvent().GetModelIntent() != nil {
			break
		}
	}
	_, err = r.runs.CancelRun(t.Context(), &agentv1.CancelRunRequest{Name: name})
	require.NoError(t, err)
	for {
		one, err := stream.Recv()
		require.NoError(t, err)
		if one.GetEvent().GetRunFinished() != nil {
			assert.Equal(t, agentv1.RunState_RUN_STATE_CANCELLED, one.GetEvent().GetRunFinished().GetState())
			return
		}
	}
}

// What is known of an open effect comes between the events, and after that of its intent.
func TestAWatchTellsOfOpenEffects(t *testing.T) {
	t.Parallel()
	r := serve(t)
	asked := r.hang()
	name := r.create(answering())
	waittest.For(t, asked, "the model call of the run")
	key := progress.Key{Run: name, Intent: 3}
	r.Notes.Post(progress.Key{Run: "another", Intent: 3}, &agentv1.RunNote{})
	r.Notes.Post(key, &agentv1.RunNote{Run: name, Intent: 3, Note: &effectv1.Note{Message: "slow down"}})
	stream, err := r.runs.WatchRun(waittest.Context(t), &agentv1.WatchRunRequest{Name: name})
	require.NoError(t, err)
	next := func() *agentv1.WatchRunResponse {
		one, err := stream.Recv()
		require.NoError(t, err)
		return one
	}
	var last *agentv1.WatchRunResponse
	intended := false
	for last = next(); last.GetNote() == nil; last = next() {
		intended = intended || last.GetEvent().GetModelIntent() != nil
	}
	assert.True(t, intended)
	assert.Equal(t, "slow down", last.GetNote().GetNote().GetMessage())
	assert.NotEmpty(t, last.GetCursor())
	r.Notes.Clear(key)
	last = next()
	require.NotNil(t, last.GetNote())
	assert.EqualValues(t, 3, last.GetNote().GetIntent())
	assert.Nil(t, last.GetNote().GetNote(), "it is over")
	_, err = r.runs.CancelRun(t.Context(), &agentv1.CancelRunRequest{Name: name})
	require.NoError(t, err)
}

func TestCursorsAndNamesAreChecked(t *testing.T) {
	t.Parallel()
	r := serve(t)
	name, other := r.finished(answering()), r.finished(answering())
	all, err := r.watch(&agentv1.WatchRunRequest{Name: other})
	require.NoError(t, err)
	for text, cursor := range map[string]string{"another run's": all[0].GetCursor(), "nonsense": "%%", "no number": "YWJj"} {
		_, err := r.watch(&agentv1.WatchRunRequest{Name: name, Cursor: cursor})
		assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_INVALID_CURSOR), "%s: %v", text, err)
	}
	_, err = r.watch(&agentv1.WatchRunRequest{Name: project + "/runs/none"})
	assert.Equal(t, codes.NotFound, rpcerr.Code(err))
	_, err = r.watch(&agentv1.WatchRunRequest{Name: name, Deltas: true})
	assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_NOT_BUILT_YET), "%v", err)
}

func TestEventsAreListedInPages(t *testing.T) {
	t.Parallel()
	r := serve(t)
	name := r.finished(answering())
	var after, total int64
	for {
		page, err := r.runs.ListRunEvents(t.Context(), &agentv1.ListRunEventsRequest{Parent: name, AfterSeq: after, PageSize: 3, Content: true})
		require.NoError(t, err)
		total = page.GetHead()
		if len(page.GetEvents()) == 0 {
			break
		}
		assert.LessOrEqual(t, len(page.GetEvents()), 3)
		for _, e := range page.GetEvents() {
			after++
			assert.Equal(t, after, e.GetSeq())
			assert.Equal(t, name, e.GetJournal())
		}
	}
	assert.Equal(t, total, after)
	bare, err := r.runs.ListRunEvents(t.Context(), &agentv1.ListRunEventsRequest{Parent: name})
	require.NoError(t, err)
	text, err := protojson.Marshal(bare)
	require.NoError(t, err)
	assert.NotContains(t, string(text), "the answer")
	_, err = r.runs.ListRunEvents(t.Context(), &agentv1.ListRunEventsRequest{Parent: project + "/runs/none"})
	assert.Equal(t, codes.NotFound, rpcerr.Code(err))
}

// An active run shows the latest progress of its open effects.
func TestARunAtWorkIsShownWithItsRetries(t *testing.T) {
	t.Parallel()
	r := serve(t)
	asked := r.hang()
	name := r.create(answering())
	waittest.For(t, asked, "the model call of the run")
	r.Notes.Post(progress.Key{Run: name, Intent: 3}, &agentv1.RunNote{Run: name, Intent: 3, Note: &effectv1.Note{Message: "slow down", FailedAttempts: 2}})
	listed, err := r.runs.ListRuns(t.Context(), &agentv1.ListRunsRequest{Parent: project})
	require.NoError(t, err)
	require.Len(t, listed.GetRuns(), 1)
	got, err := r.runs.GetRun(t.Context(), &agentv1.GetRunRequest{Name: name})
	require.NoError(t, err)
	for _, one := range []*agentv1.Run{listed.GetRuns()[0], got} {
		assert.Equal(t, "slow down", one.GetNote().GetMessage())
		assert.EqualValues(t, 2, one.GetRetries())
	}
	_, err = r.runs.CancelRun(t.Context(), &agentv1.CancelRunRequest{Name: name})
	require.NoError(t, err)
}

func TestARunIsWaitedFor(t *testing.T) {
	t.Parallel()
	r := serve(t)
	asked := r.hang()
	name := r.create(answering())
	waittest.For(t, asked, "the model call of the run")
	now, err := r.runs.WaitRun(t.Context(), &agentv1.WaitRunRequest{Name: name, Timeout: durationpb.New(0)})
	require.NoError(t, err)
	assert.Equal(t, agentv1.RunState_RUN_STATE_RUNNING, now.GetState(), "the time is over")

	ended := make(chan *agentv1.Run, 1)
	go func() {
		one, err := r.runs.WaitRun(t.Context(), &agentv1.WaitRunRequest{Name: name, View: agentv1.RunView_RUN_VIEW_FULL})
		assert.NoError(t, err)
		ended <- one
	}()
	_, err = r.runs.CancelRun(t.Context(), &agentv1.CancelRunRequest{Name: name})
	require.NoError(t, err)
	assert.Equal(t, agentv1.RunState_RUN_STATE_CANCELLED, waittest.For(t, ended, "the run that is waited for").GetState())
	one, err := r.runs.WaitRun(t.Context(), &agentv1.WaitRunRequest{Name: name})
	require.NoError(t, err)
	assert.Equal(t, agentv1.RunState_RUN_STATE_CANCELLED, one.GetState(), "one that has ended is not waited for")
	_, err = r.runs.WaitRun(t.Context(), &agentv1.WaitRunRequest{Name: name + "x"})
	assert.Equal(t, codes.NotFound, rpcerr.Code(err))
	_, err = r.runs.WaitRun(t.Context(), &agentv1.WaitRunRequest{Name: "x"})
	assert.Equal(t, codes.InvalidArgument, rpcerr.Code(err))
}
