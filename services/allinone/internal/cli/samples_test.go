package cli_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/timestamppb"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	effectv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/effect/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/waittest"
)

// An interrupted evaluation has no results, although some of its samples were scored.
func TestAnInterruptShowsTheScoresOfWhatWasFinished(t *testing.T) {
	t.Parallel()
	grade := func(text string) *agentv1.EvalSample {
		value := &agentv1.ScoreValue{Kind: &agentv1.ScoreValue_Text{Text: text}}
		return &agentv1.EvalSample{State: agentv1.RunState_RUN_STATE_SUCCEEDED, Scores: []*agentv1.NamedScore{{Name: "match", Score: &agentv1.Score{Value: value}}}}
	}
	s := &server{eval: at(running, 0), samples: []*agentv1.EvalSample{grade("C"), grade("I"), grade("C"), {State: agentv1.RunState_RUN_STATE_CANCELLED}}}
	watching := make(chan bool, 1)
	s.watch = waits(s, watching)
	c := begin(t, append(serve(t, s), "eval", "run", task(t, 1))...)
	waittest.For(t, watching, "the watch of the evaluation")
	c.signals <- os.Interrupt
	assert.Equal(t, 130, c.end(t))
	assert.Contains(t, c.stdout.String(), "SCORER  SAMPLES  MEAN SO FAR\nmatch   3        0.667\n")
}

// With several models a line names the sample's.
func TestFollowingAnEvaluationNamesTheModels(t *testing.T) {
	t.Parallel()
	of := func(state agentv1.EvalState, done int32) *agentv1.Eval {
		e := at(state, done)
		e.Spec.Models = []*agentv1.ModelRef{{Model: "mockllm/one"}, {Model: "mockllm/two"}}
		return e
	}
	s := &server{eval: of(running, 0)}
	s.watch = func(_ int, _ *agentv1.WatchEvalRequest, stream agentv1.EvalService_WatchEvalServer) error {
		for _, e := range []*agentv1.Event{
			{Kind: &agentv1.Event_SampleAdmitted{SampleAdmitted: &agentv1.SampleAdmitted{Sample: "a", Epoch: 1, Run: "r1", Model: "mockllm/two", ModelIndex: 1}}},
			{Kind: &agentv1.Event_SampleFinished{SampleFinished: &agentv1.SampleFinished{Sample: "a", Epoch: 1, Run: "r1", State: agentv1.RunState_RUN_STATE_SUCCEEDED}}},
			{Kind: &agentv1.Event_SampleFinished{SampleFinished: &agentv1.SampleFinished{Sample: "b", Epoch: 1, ModelIndex: 1, State: agentv1.RunState_RUN_STATE_FAILED}}},
		} {
			if err := stream.Send(&agentv1.WatchEvalResponse{Update: &agentv1.WatchEvalResponse_Event{Event: e}}); err != nil {
				return err
			}
		}
		s.become(of(succeeded, 4))
		return nil
	}
	c := begin(t, append(serve(t, s), "logs", "e1", "--follow")...)
	assert.Equal(t, 0, c.end(t), c.stderr.String())
	assert.Equal(t, "a · succeeded · 0 turns · 0 tokens · 0s · mockllm/two\nb · failed · 0 turns · 0 tokens · 0s · mockllm/two\n", c.stdout.String())
}

func TestFollowingAnEvaluationWritesALineForEachSampleThatEnds(t *testing.T) {
	t.Parallel()
	ends := func(f *agentv1.SampleFinished) *agentv1.WatchEvalResponse {
		return &agentv1.WatchEvalResponse{Update: &agentv1.WatchEvalResponse_Event{Event: &agentv1.Event{Kind: &agentv1.Event_SampleFinished{SampleFinished: f}}}}
	}
	for state, code := range map[agentv1.EvalState]int{succeeded: 0, failed: 1, cancelled: 1} {
		s := &server{eval: at(running, 0)}
		s.watch = func(_ int, _ *agentv1.WatchEvalRequest, stream agentv1.EvalService_WatchEvalServer) error {
			for _, f := range []*agentv1.SampleFinished{
				{Sample: "a", Epoch: 1, State: agentv1.RunState_RUN_STATE_SUCCEEDED, Turns: 1},
				{Sample: "b", Epoch: 2, State: agentv1.RunState_RUN_STATE_FAILED, Turns: 3, Retries: 2, Error: &agentv1.RunError{Message: "openai answered 500"}},
			} {
				if err := stream.Send(ends(f)); err != nil {
					return err
				}
			}
			s.become(at(state, 4))
			return nil
		}
		flags := serve(t, s)
		c := begin(t, append(flags, "logs", "e1", "--follow")...)
		assert.Equal(t, code, c.end(t), c.stderr.String())
		assert.Equal(t, "a · succeeded · 1 turn · 0 tokens · 0s\nb, epoch 2 · failed · 3 turns · 0 tokens · 0s · 2 retries · openai answered 500\n", c.stdout.String())
		assert.Contains(t, c.stderr.String(), "e1 "+strings.ToLower(strings.TrimPrefix(state.String(), "EVAL_STATE_"))+" · 4 samples")
		c = begin(t, append(flags, "logs", "e1", "-f", "--failed", "--json")...)
		assert.Equal(t, code, c.end(t), c.stderr.String())
		assert.Equal(t, 1, strings.Count(c.stdout.String(), "\n"))
		assert.Contains(t, c.stdout.String(), `"retries":2`)
	}
}

// A run reports once which of its options are not sent to its model, as eval run does.
func TestARunWarnsOfOptionsThatAreNotSent(t *testing.T) {
	t.Parallel()
	answered := &agentv1.Event{Kind: &agentv1.Event_ModelOutcome{ModelOutcome: &agentv1.ModelOutcome{
		Content: &agentv1.ModelOutcomeContent{Warnings: []string{"temperature is not sent to anthropic/claude: the API refuses it"}},
	}}}
	for _, warnings := range [][]*agentv1.EvalWarning{nil, {{Message: "temperature is not sent to anthropic/claude: the API refuses it"}}} {
		c := begin(t, append(serve(t, &server{events: []*agentv1.Event{answered, answered}, warnings: warnings}), "run", "-m", "anthropic/claude", "hello")...)
		require.Equal(t, 0, c.end(t), c.stderr.String())
		assert.Equal(t, 1, strings.Count(c.stderr.String(), "warning: temperature is not sent to anthropic/claude: the API refuses it\n"), c.stderr.String())
	}
}

func TestAListSaysHowManySamplesWait(t *testing.T) {
	t.Parallel()
	e := at(running, 1)
	e.Progress.Waiting = 2
	c := begin(t, append(serve(t, &server{eval: e}), "eval", "list")...)
	require.Equal(t, 0, c.end(t), c.stderr.String())
	assert.Regexp(t, `(?m)^e1 +sums +mockllm/model +running, 2 waiting +1/4 `, c.stdout.String())
}

// The activity and the wait of a running sample are listed with its usage so far.
func TestSamplesAtWorkAreListed(t *testing.T) {
	t.Parallel()
	s := &server{eval: at(running, 1), samples: []*agentv1.EvalSample{
		{
			Id: "a", Epoch: 1, Run: "r1", State: agentv1.RunState_RUN_STATE_RUNNING, Turns: 2, Retries: 3, Usage: &modelv1.ModelUsage{TotalTokens: 1500}, StartTime: timestamppb.Now(),
			Activity: "model openai/gpt-4o", Note: &effectv1.Note{Message: "openai answered 429", RetryTime: timestamppb.New(time.Now().Add(time.Hour))},
		},
		{Id: "b", Epoch: 1, Run: "r2", State: agentv1.RunState_RUN_STATE_WAITING, Wait: &agentv1.RunWait{Reason: agentv1.WaitReason_WAIT_REASON_WORKER, Message: "no worker serves tool weather"}},
		{Id: "c", Epoch: 1, State: agentv1.RunState_RUN_STATE_PENDING},
	}}
	flags := serve(t, s)
	for _, args := range [][]string{{"logs", "e1"}, {"eval", "show", "e1"}} {
		c := begin(t, append(flags, args...)...)
		require.Equal(t, 0, c.end(t), c.stderr.String())
		assert.Regexp(t, `(?m)^a +1 +running +2 +1\.5k +3 +\S+ +model openai/gpt-4o: retrying in 3[56]\d\d s: openai answered 429$`, c.stdout.String())
		assert.Regexp(t, `(?m)^b +1 +waiting +0 +0 +0 +0s +waits for worker: no worker serves tool weather$`, c.stdout.String())
		assert.Equal(t, args[0] == "logs", strings.Contains(c.stdout.String(), "pending"), "eval show has those at work")
	}
}
