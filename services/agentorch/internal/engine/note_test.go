package engine_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	effectv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/effect/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/progress"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/servicetest"
)

// noted waits until the notes of a run are as many as wanted, and returns the latest one.
func (f *fleet) noted(name string, wanted int) *agentv1.RunNote {
	f.T.Helper()
	watch := f.Notes.Watch(progress.OfRun(name))
	defer watch.Close()
	late := time.NewTimer(waittest.Bound)
	defer late.Stop()
	for {
		if notes := progress.Latest(f.Notes, progress.OfRun(name), 100); len(notes) == wanted {
			if wanted == 0 {
				return nil
			}
			return notes[0]
		}
		select {
		case <-watch.C:
			watch.Next()
		case <-late.C:
			require.FailNow(f.T, "the notes are late")
		}
	}
}

func TestARetryOfAModelCallIsNotedWhileTheCallIsOpen(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.Models.Retries = make(chan *modelv1.WatchRetriesResponse, 8)
	asked, let := make(chan *modelv1.GenerateRequest, 1), make(chan struct{})
	f.Models.Answer = func(_ context.Context, r *modelv1.GenerateRequest) (*modelv1.ModelOutput, error) {
		asked <- r
		waittest.Hold(t, let)
		return servicetest.Say("ok"), nil
	}
	f.start()
	s := spec(step("generate", ""))
	s.Attribution = &effectv1.Attribution{Eval: "projects/p/evals/e", Sample: "a", Epoch: 2}
	name := f.Create(s).Name
	r := waittest.For(t, asked, "the model call of the run")
	news := &modelv1.WatchRetriesResponse{Parent: r.GetParent(), RequestId: r.GetRequestId(), Note: &effectv1.Note{Message: "slow down", FailedAttempts: 1}}
	f.Models.Retries <- &modelv1.WatchRetriesResponse{Parent: r.GetParent(), RequestId: "another", Note: news.GetNote()}
	f.Models.Retries <- news
	got := f.noted(name, 1)
	assert.Equal(t, "slow down", got.GetNote().GetMessage())
	assert.Equal(t, name, got.GetRun())
	assert.Equal(t, "a", got.GetSample())
	assert.EqualValues(t, 2, got.GetEpoch())
	assert.Len(t, progress.Latest(f.Notes, progress.OfEval("projects/p/evals/e"), 10), 1)
	for e, err := range f.Events(name) {
		require.NoError(t, err)
		if e.GetModelIntent() != nil {
			assert.Equal(t, e.GetSeq(), got.GetIntent())
		}
	}
	f.Models.Retries <- &modelv1.WatchRetriesResponse{Parent: r.GetParent(), RequestId: r.GetRequestId()} // the next attempt has begun
	f.noted(name, 0)
	f.Models.Retries <- news
	f.noted(name, 1)
	close(let)
	f.Finish(name)
	f.noted(name, 0)
}

func TestWhatAWorkerSaysOfACallIsNoted(t *testing.T) {
	t.Parallel()
	f := newFleet(t).start()
	f.Models.Answer = servicetest.ByTurn(servicetest.Says("go", call("one", "dig", `{}`), call("two", "dig", `{}`)), servicetest.Says("end"))
	let := make(chan struct{}, 2)
	f.Tools.Tools["dig"] = servicetest.Tool{Parallel: true, Run: func(_ context.Context, c servicetest.Call) (*toolv1.ToolResult, error) {
		c.Progress("half way")
		waittest.Hold(t, let)
		return servicetest.Text("a hole"), nil
	}}
	name := f.Create(spec(step("generate", "", "dig"))).Name
	assert.Equal(t, "half way", f.noted(name, 2).GetNote().GetMessage())
	let <- struct{}{}
	f.noted(name, 1)
	let <- struct{}{}
	f.Finish(name)
	f.noted(name, 0)
}

func TestACallThatGaveUpIsRecordedWithItsAttempts(t *testing.T) {
	t.Parallel()
	f := newFleet(t).start()
	failed := &modelv1.FailedAttempt{Error: "slow down", Status: 429, Wait: durationpb.New(time.Second)}
	said := &modelv1.ModelCall{RequestJson: `{}`, ResponseJson: `{"body":"overloaded"}`, Error: true}
	f.Models.Answer = func(context.Context, *modelv1.GenerateRequest) (*modelv1.ModelOutput, error) {
		return nil, rpcerr.ProviderUnavailable("mockllm", 503, time.Second, "overloaded").WithDetail(failed).WithDetail(said)
	}
	name := f.Create(spec(step("generate", ""))).Name
	f.Finish(name)
	var recorded []*modelv1.FailedAttempt
	var call *modelv1.ModelCall
	for e, err := range f.Events(name) {
		require.NoError(t, err)
		recorded = append(recorded, e.GetModelOutcome().GetFailedAttempts()...)
		if c := e.GetModelOutcome().GetContent().GetCall(); c != nil {
			call = c
		}
	}
	assert.True(t, proto.Equal(said, call), "what was said is kept: %v", call)
	require.Len(t, recorded, 1)
	assert.Equal(t, "slow down", recorded[0].GetError())
}

func TestAnAnswerIsRecordedWithWhatFailedBeforeIt(t *testing.T) {
	t.Parallel()
	f := newFleet(t).start()
	said := &modelv1.ModelCall{RequestJson: `{}`, ResponseJson: `{"body":"overloaded"}`, Error: true}
	f.Models.Failed = []*modelv1.FailedAttempt{{Error: "earlier"}, {Error: "slow down", Call: said}, {Error: "held back"}}
	f.Models.Answer = servicetest.ByTurn(servicetest.Says("fine"))
	name := f.Create(spec(step("generate", ""))).Name
	f.Finish(name)
	for e, err := range f.Events(name) {
		require.NoError(t, err)
		if o := e.GetModelOutcome(); o != nil {
			require.Len(t, o.GetFailedAttempts(), 3)
			assert.Nil(t, o.GetFailedAttempts()[1].GetCall(), "what is long is in the content")
			require.Len(t, o.GetContent().GetFailedCalls(), 2, "from the first that has one, each in its place")
			assert.True(t, proto.Equal(said, o.GetContent().GetFailedCalls()[0]))
			assert.True(t, proto.Equal(&modelv1.ModelCall{}, o.GetContent().GetFailedCalls()[1]))
		}
	}
}

func TestARunIsListedWithWhatWasAnsweredBeforeACallThatTakesLong(t *testing.T) {
	t.Parallel()
	f := newFleet(t).start()
	asked, let := make(chan struct{}), make(chan struct{})
	f.Models.Answer = servicetest.ByTurn(servicetest.Says("go", call("c", "quick", `{}`)), func() *modelv1.ModelOutput {
		close(asked)
		waittest.Hold(t, let)
		return servicetest.Say("end")
	})
	f.Tools.Tools["quick"] = servicetest.Tool{Run: func(context.Context, servicetest.Call) (*toolv1.ToolResult, error) {
		return servicetest.Text("ok"), nil
	}}
	name := f.Create(spec(step("generate", "", "quick"))).Name
	waittest.For(t, asked, "the second model call")
	rows, err := f.Store.List(t.Context(), journal.Query{Kind: journal.KindRun, Open: true})
	require.NoError(t, err)
	require.Len(t, rows, 1)
	listed := &agentv1.Run{}
	require.NoError(t, proto.Unmarshal(rows[0].View, listed))
	assert.EqualValues(t, 1, listed.GetTurns())
	assert.NotEmpty(t, listed.GetUsage())
	assert.Equal(t, "model mockllm/model", listed.GetActivity())
	close(let)
	f.Finish(name)
}
