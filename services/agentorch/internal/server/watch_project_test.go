package server_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
)

// place creates the journal of an evaluation or a run that no replica drives.
func (r *rig) place(name string, kind journal.Kind, parent string, view proto.Message) {
	r.T.Helper()
	body, err := proto.Marshal(view)
	require.NoError(r.T, err)
	_, _, err = r.Store.Create(r.T.Context(), journal.Creation{
		Name: name, Owner: "nobody", Row: journal.Row{Kind: kind, State: 1, Parent: parent, View: body},
		Entries: []journal.Entry{{Event: &agentv1.Event{Seq: 1, Kind: &agentv1.Event_Info{Info: &agentv1.Info{Code: "made"}}}}},
	})
	require.NoError(r.T, err)
}

func TestAWatchOfAProjectTellsOfRunsAndEvaluations(t *testing.T) {
	t.Parallel()
	r := serve(t)
	eval, sample := project+"/evals/e", project+"/runs/sample"
	r.place(eval, journal.KindEval, "", &agentv1.Eval{Name: eval, State: agentv1.EvalState_EVAL_STATE_RUNNING})
	r.place(sample, journal.KindRun, eval, &agentv1.Run{Name: sample, State: agentv1.RunState_RUN_STATE_RUNNING})
	r.place("projects/other/runs/r", journal.KindRun, "", &agentv1.Run{Name: "projects/other/runs/r"})
	all, err := r.runs.WatchProject(waittest.Context(t), &agentv1.WatchProjectRequest{Parent: project})
	require.NoError(t, err)
	next := func() *agentv1.WatchProjectResponse {
		one, err := all.Recv()
		require.NoError(t, err)
		return one
	}
	first := next()
	assert.Equal(t, eval, first.GetEval().GetName())
	assert.Equal(t, agentv1.EvalState_EVAL_STATE_RUNNING, first.GetEval().GetState())
	assert.Equal(t, sample, next().GetRun().GetName())

	name := r.create(answering())
	var states []agentv1.RunState
	for len(states) == 0 || states[len(states)-1] != agentv1.RunState_RUN_STATE_SUCCEEDED {
		one := next()
		require.Equal(t, name, one.GetRun().GetName())
		text, err := protojson.Marshal(one)
		require.NoError(t, err)
		assert.NotContains(t, string(text), "the answer")
		states = append(states, one.GetRun().GetState())
	}

	rest, err := r.runs.WatchProject(waittest.Context(t), &agentv1.WatchProjectRequest{Parent: project, Cursor: first.GetCursor(), WithoutSamples: true})
	require.NoError(t, err)
	one, err := rest.Recv()
	require.NoError(t, err)
	assert.Equal(t, name, one.GetRun().GetName(), "without the run of the sample, and without what was told before")
	assert.Equal(t, agentv1.RunState_RUN_STATE_SUCCEEDED, one.GetRun().GetState(), "as it is now")

	now, err := r.runs.WatchProject(waittest.Context(t), &agentv1.WatchProjectRequest{Parent: project, FromHead: true})
	require.NoError(t, err)
	one, err = now.Recv()
	require.NoError(t, err)
	assert.Nil(t, one.GetUpdate())
	assert.Equal(t, one.GetCursor(), func() string {
		again, err := r.runs.WatchProject(waittest.Context(t), &agentv1.WatchProjectRequest{Parent: project, FromHead: true})
		require.NoError(t, err)
		same, err := again.Recv()
		require.NoError(t, err)
		return same.GetCursor()
	}(), "nothing has changed")

	other, err := r.runs.WatchProject(waittest.Context(t), &agentv1.WatchProjectRequest{Parent: "projects/other", Cursor: one.GetCursor()})
	require.NoError(t, err)
	_, err = other.Recv()
	assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_INVALID_CURSOR), "%v", err)
}
