package engine_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/evalfleet/evalfleet/pkg/chat"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/run"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score/grader"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/servicetest"
)

// asking is a scorer whose verdict is what the role grader says about the answer, or the error of that call.
type asking struct{}

func (asking) Next(in score.Input, results []score.Result) (score.Step, error) {
	if len(results) == 0 {
		return score.Step{Effect: grader.Question{Model: "grader", Messages: []*modelv1.ChatMessage{user("Grade: " + in.Completion)}}}, nil
	}
	outcome, _ := results[0].(*agentv1.ModelOutcome)
	verdict := chat.Completion(outcome.GetContent().GetOutput())
	if outcome.GetError() != nil {
		verdict = outcome.GetError().GetReason()
	}
	return score.Step{Score: &score.Score{Value: score.Text(verdict)}}, nil
}

// graded gives a fleet a scorer that asks a model, which answers with verdicts in turn, and returns a run that it
// judges.
func graded(f *fleet, first *agentv1.AgentRef, verdicts ...func() (*modelv1.ModelOutput, error)) *agentv1.RunSpec {
	f.Scorers = score.NewRegistry(score.Definition{Name: "asks", New: func(json.RawMessage) (score.Scorer, error) { return asking{}, nil }})
	agents := f.Models.Answer
	f.Models.Answer = func(ctx context.Context, r *modelv1.GenerateRequest) (*modelv1.ModelOutput, error) {
		if r.GetAttribution().GetPurpose() != run.PurposeScore {
			return agents(ctx, r)
		}
		next := verdicts[0]
		verdicts = verdicts[1:]
		return next()
	}
	s := spec(first)
	s.ModelRoles = map[string]*agentv1.ModelRef{"grader": {Model: "mockllm/grader"}}
	s.Scorers, s.Target = []*agentv1.ScorerRef{{Name: "asks"}}, &agentv1.Target{Values: []string{"x"}}
	return s
}

func verdict(text string) func() (*modelv1.ModelOutput, error) {
	return func() (*modelv1.ModelOutput, error) { return servicetest.Say(text), nil }
}

func noVerdict(no error) func() (*modelv1.ModelOutput, error) {
	return func() (*modelv1.ModelOutput, error) { return nil, no }
}

// gradedLife is a run with two attempts, which a model judges after each and at the end.
func gradedLife(f *fleet) *agentv1.RunSpec {
	f.Models.Answer = servicetest.ByTurn(
		servicetest.Says("", call("c1", "submit", `{"answer": "41"}`)), servicetest.Says("", call("c2", "submit", `{"answer": "42"}`)),
	)
	return graded(f, step("react", `{"attempts": 3, "prompt": null}`), verdict("I"), verdict("C"), verdict("C"))
}

// A model call of a scorer counts in the usage of its run and of its role; it is no turn, and not in the conversation.
func TestAScorerAsksAModel(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	s := gradedLife(f)
	f.start()
	state := f.Finish(f.Create(s).Name)
	got := f.ending(state)
	assert.Equal(t, []string{"asks=C"}, got.Scores)
	assert.Equal(t, []string{"U:Start.", "A:41", "U:" + got.Messages[2][2:], "A:42"}, got.Messages)
	assert.Equal(t, []int{5, 2}, []int{got.Models, got.Turns}, "two turns, and a call of the scorer after each and at the end")
	assert.Equal(t, state.RoleUsage["grader"].GetTotalTokens(), state.Usage["mockllm/grader"].GetTotalTokens())
	assert.Positive(t, state.RoleUsage["grader"].GetTotalTokens())
}

// What a model judges happens once, however often the process dies.
func TestDeathAtEveryAppendOfAGradedLife(t *testing.T) {
	t.Parallel()
	calm := newFleet(t)
	s := gradedLife(calm)
	calm.start()
	want := calm.ending(calm.Finish(calm.Create(s).Name))
	dieEverywhere(t, want, gradedLife)
}

// A rate limit that has outlasted the retries of a scorer's call fails the run. Any other failure is the scorer's to
// judge.
func TestAScorersModelCallThatFails(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.Models.Answer = servicetest.ByTurn(servicetest.Says("Hello."), servicetest.Says("Hello."))
	slow := rpcerr.ProviderRateLimited("openai", 429, 10*time.Millisecond, "slow down")
	s := graded(f, step("generate", ""), noVerdict(slow), noVerdict(rpcerr.ProviderUnavailable("openai", 503, 0, "gone")))
	f.start()
	limited := f.Finish(f.Create(s).Name)
	assert.Equal(t, agentv1.RunState_RUN_STATE_FAILED, limited.Phase)
	assert.Equal(t, "PROVIDER_RATE_LIMITED", limited.Error.GetReason())
	assert.Equal(t, []string{"asks=PROVIDER_UNAVAILABLE"}, f.ending(f.Finish(f.Create(s).Name)).Scores)
}
