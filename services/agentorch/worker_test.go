package agentorch_test

import (
	"io"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/evalfleet/evalfleet/pkg/chat"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	workerv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/worker/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/pkg/worker/workertest"
)

// judge is a registration that offers the scorer `polite` and the function `guide`.
func judge(change ...func(*workerv1.Register)) *workerv1.Register {
	r := &workerv1.Register{Offers: []*workerv1.Offer{
		{Kind: "scorer", Name: "polite", OnUnknown: "retry", StoreKeys: []string{"seen"}, ParametersJson: `{"type":"object","properties":{"word":{"type":"string"}},"additionalProperties":false}`},
		{Kind: "continue", Name: "guide"},
	}}
	for _, f := range change {
		f(r)
	}
	return r
}

// scored is an evaluation of one sample that a worker scores.
func scored(params string) *agentv1.EvalSpec {
	return &agentv1.EvalSpec{
		Task: "sums", Models: []*agentv1.ModelRef{{Model: "mockllm/model"}}, Scorers: []*agentv1.ScorerRef{{Name: "polite", ParamsJson: params}},
		Dataset: &agentv1.Dataset{Source: &agentv1.Dataset_Inline{Inline: &agentv1.SampleList{Samples: []*agentv1.Sample{
			{Id: "a", Input: []*modelv1.ChatMessage{chat.User("6 times 7?")}, Target: &agentv1.Target{Values: []string{"42"}}, MetadataJson: `{"hard":true}`},
		}}}},
	}
}

// wait waits for the end of an evaluation and returns its only sample's run.
func wait(t *testing.T, conn grpc.ClientConnInterface, eval *agentv1.Eval) (*agentv1.Eval, *agentv1.Run) {
	t.Helper()
	progress, err := agentv1.NewEvalServiceClient(conn).WatchEval(waittest.Context(t), &agentv1.WatchEvalRequest{Name: eval.GetName()})
	require.NoError(t, err)
	for err == nil {
		_, err = progress.Recv()
	}
	require.ErrorIs(t, err, io.EOF)
	eval, err = agentv1.NewEvalServiceClient(conn).GetEval(t.Context(), &agentv1.GetEvalRequest{Name: eval.GetName()})
	require.NoError(t, err)
	samples, err := agentv1.NewEvalServiceClient(conn).ListSamples(t.Context(), &agentv1.ListSamplesRequest{Parent: eval.GetName()})
	require.NoError(t, err)
	run, err := agentv1.NewRunServiceClient(conn).GetRun(t.Context(), &agentv1.GetRunRequest{Name: samples.GetSamples()[0].GetRun(), View: agentv1.RunView_RUN_VIEW_FULL})
	require.NoError(t, err)
	return eval, run
}

// A worker's scorer is called like any other. While its worker is disconnected and the service dies, the run waits and
// names the reason.
func TestAWorkerScores(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	close(s.models.may)
	conn, end := s.start()
	evals := agentv1.NewEvalServiceClient(conn)
	_, err := evals.CreateEval(t.Context(), &agentv1.CreateEvalRequest{Parent: project, Spec: scored("")})
	require.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_SCORER_NOT_FOUND), "%v", err)
	require.ErrorContains(t, err, "a worker may serve it, and none that does is connected")

	w := workertest.Dial(t, workerv1.NewWorkerServiceClient(conn))
	w.Register(judge())
	_, err = evals.CreateEval(t.Context(), &agentv1.CreateEvalRequest{Parent: project, Spec: scored(`{"wrd":"please"}`)})
	require.Equal(t, codes.InvalidArgument, rpcerr.Code(err), "%v", err)
	require.ErrorContains(t, err, "wrd")
	eval, err := evals.CreateEval(t.Context(), &agentv1.CreateEvalRequest{Parent: project, Spec: scored(`{"word":"please"}`)})
	require.NoError(t, err)
	call := w.Call()
	payload := &workerv1.ScorerPayload{}
	require.NoError(t, protojson.Unmarshal([]byte(call.GetPayloadJson()), payload))
	assert.Equal(t, []string{"42"}, payload.GetTarget().GetValues())
	assert.Equal(t, "42", chat.Completion(payload.GetOutput()))
	assert.Len(t, payload.GetMessages(), 2)
	assert.JSONEq(t, `{"hard":true}`, payload.GetMetadataJson())
	assert.JSONEq(t, `{"word":"please"}`, payload.GetParamsJson())
	assert.Equal(t, "a", payload.GetAttribution().GetSample())

	end()
	conn, end = s.start()
	defer end()
	runs := agentv1.NewRunServiceClient(conn)
	require.Eventually(t, func() bool {
		list, err := runs.ListRuns(t.Context(), &agentv1.ListRunsRequest{Parent: project})
		require.NoError(t, err)
		return len(list.GetRuns()) == 1 && list.GetRuns()[0].GetWait().GetReason() == agentv1.WaitReason_WAIT_REASON_WORKER && list.GetRuns()[0].GetWait().GetMessage() == "waiting for a worker of scorer polite"
	}, patience, pause, "the run says what it waits for")

	again := workertest.Dial(t, workerv1.NewWorkerServiceClient(conn))
	assert.Empty(t, again.Register(judge(func(r *workerv1.Register) { r.Unfinished = []string{call.GetKey()} })).GetForget())
	again.Send(workertest.Result(call.GetKey(), `{"score":{"value":{"text":"C"},"explanation":"it said please"},"storeChanges":[{"key":"seen","valueJson":"1"}]}`))
	assert.Equal(t, call.GetKey(), again.Next().GetAccepted().GetKey())
	eval, run := wait(t, conn, eval)
	assert.Equal(t, agentv1.EvalState_EVAL_STATE_SUCCEEDED, eval.GetState(), "%v", eval.GetError())
	assert.Equal(t, "polite", eval.GetResults().GetScores()[0].GetName())
	assert.Equal(t, "it said please", run.GetScores()[0].GetScore().GetExplanation())
	assert.Equal(t, map[string]string{"seen": "1"}, run.GetStore(), "changes are journaled with the answer")
}

func TestWhatAScorersWorkerMustNotAnswer(t *testing.T) {
	t.Parallel()
	for says, answer := range map[string]func(key string) *workerv1.ConnectRequest{
		"it is not the JSON of ScorerResultPayload": func(key string) *workerv1.ConnectRequest { return workertest.Result(key, `nonsense`) },
		`unknown field "scores"`:                    func(key string) *workerv1.ConnectRequest { return workertest.Result(key, `{"scores":1}`) },
		"gave no score":                             func(key string) *workerv1.ConnectRequest { return workertest.Result(key, `{}`) },
		`entry "other"`: func(key string) *workerv1.ConnectRequest {
			return workertest.Result(key, `{"score":{"value":{"number":1}},"storeChanges":[{"key":"other","valueJson":"1"}]}`)
		},
		"BROKEN: no": func(key string) *workerv1.ConnectRequest {
			return workertest.Failure(key, &workerv1.CallError{Type: "BROKEN", Message: "no"})
		},
	} {
		t.Run(says, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			close(s.models.may)
			conn, end := s.start()
			defer end()
			w := workertest.Dial(t, workerv1.NewWorkerServiceClient(conn))
			w.Register(judge())
			eval, err := agentv1.NewEvalServiceClient(conn).CreateEval(t.Context(), &agentv1.CreateEvalRequest{Parent: project, Spec: scored("")})
			require.NoError(t, err)
			key := w.Call().GetKey()
			w.Send(answer(key))
			assert.Equal(t, key, w.Next().GetAccepted().GetKey(), "the worker stays")
			eval, run := wait(t, conn, eval)
			assert.Equal(t, agentv1.EvalState_EVAL_STATE_FAILED, eval.GetState())
			assert.Contains(t, run.GetError().GetMessage(), says)
			assert.Contains(t, run.GetError().GetMessage(), "polite")
		})
	}
}

// A worker decides after each turn how react continues.
func TestAWorkerGuidesAnAgent(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	close(s.models.may)
	conn, end := s.start()
	defer end()
	runs := agentv1.NewRunServiceClient(conn)
	spec := &agentv1.RunSpec{
		Prompt: "What is it?", Model: &agentv1.ModelRef{Model: "mockllm/model"},
		Steps: []*agentv1.AgentRef{{Name: "react", ParamsJson: `{"submit": false, "on_continue": {"worker": "guide"}}`}},
	}
	_, err := runs.CreateRun(t.Context(), &agentv1.CreateRunRequest{Parent: project, Spec: spec})
	require.ErrorContains(t, err, `no worker that serves continue "guide" is connected`)
	w := workertest.Dial(t, workerv1.NewWorkerServiceClient(conn))
	w.Register(judge())
	run, err := runs.CreateRun(t.Context(), &agentv1.CreateRunRequest{Parent: project, Spec: spec})
	require.NoError(t, err)
	for _, answer := range []string{`{"message":"Are you sure?"}`, `{"proceed":false}`} {
		call := w.Call()
		assert.Equal(t, "continue", call.GetKind())
		w.Send(workertest.Result(call.GetKey(), answer))
		assert.NotNil(t, w.Next().GetAccepted())
	}
	watch, err := runs.WatchRun(waittest.Context(t), &agentv1.WatchRunRequest{Name: run.GetName()})
	require.NoError(t, err)
	assert.Equal(t, agentv1.RunState_RUN_STATE_SUCCEEDED, lastRun(t, watch).GetRunFinished().GetState())
	run, err = runs.GetRun(t.Context(), &agentv1.GetRunRequest{Name: run.GetName(), View: agentv1.RunView_RUN_VIEW_FULL})
	require.NoError(t, err)
	var said []string
	for _, m := range run.GetMessages() {
		said = append(said, chat.Text(m))
	}
	assert.Equal(t, []string{"What is it?", "42", "Are you sure?", "42"}, said[1:])
}

// What a worker decides is held against the rules of the protocol: a conversation has messages with roles.
func TestWhatAWorkerMustNotDecide(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	close(s.models.may)
	conn, end := s.start()
	defer end()
	w := workertest.Dial(t, workerv1.NewWorkerServiceClient(conn))
	w.Register(judge())
	runs := agentv1.NewRunServiceClient(conn)
	run, err := runs.CreateRun(t.Context(), &agentv1.CreateRunRequest{Parent: project, Spec: &agentv1.RunSpec{
		Prompt: "What is it?", Model: &agentv1.ModelRef{Model: "mockllm/model"},
		Steps: []*agentv1.AgentRef{{Name: "react", ParamsJson: `{"submit": false, "on_continue": {"worker": "guide"}}`}},
	}})
	require.NoError(t, err)
	w.Send(workertest.Result(w.Call().GetKey(), `{"conversation":{"messages":[{"content":{"text":"who speaks?"}}]}}`))
	assert.Contains(t, w.Next().GetAccepted().GetProblem(), "conversation.messages[0].role: is required")
	ended, err := runs.WaitRun(waittest.Context(t), &agentv1.WaitRunRequest{Name: run.GetName()})
	require.NoError(t, err)
	assert.Equal(t, agentv1.RunState_RUN_STATE_FAILED, ended.GetState())
	assert.Contains(t, ended.GetError().GetMessage(), "conversation.messages[0].role: is required")
}

// A cancel of the run reaches the worker that is asked.
func TestACancelReachesTheWorkersOfARun(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	close(s.models.may)
	conn, end := s.start()
	defer end()
	w := workertest.Dial(t, workerv1.NewWorkerServiceClient(conn))
	w.Register(judge())
	eval, err := agentv1.NewEvalServiceClient(conn).CreateEval(t.Context(), &agentv1.CreateEvalRequest{Parent: project, Spec: scored("")})
	require.NoError(t, err)
	key := w.Call().GetKey()
	_, err = agentv1.NewEvalServiceClient(conn).CancelEval(t.Context(), &agentv1.CancelEvalRequest{Name: eval.GetName()})
	require.NoError(t, err)
	assert.Equal(t, key, w.Next().GetCancel().GetKey())
	eval, run := wait(t, conn, eval)
	assert.Equal(t, agentv1.EvalState_EVAL_STATE_CANCELLED, eval.GetState())
	assert.Equal(t, agentv1.RunState_RUN_STATE_CANCELLED, run.GetState())
}
