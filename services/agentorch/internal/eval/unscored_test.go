package eval_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protojson"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
)

func never() *agentv1.FailOnError { return &agentv1.FailOnError{Rule: &agentv1.FailOnError_Enabled{}} }

func unscored() *agentv1.Run {
	run := scored("")
	run.Scores[0].Score.Value = &agentv1.ScoreValue{Kind: &agentv1.ScoreValue_Unscored{Unscored: true}}
	return run
}

// A pipeline that reads the state, or compares a metric by jq, must not accept an evaluation without scores.
func TestAnEvaluationOfWhichNothingWasScoredHasNotSucceeded(t *testing.T) {
	t.Parallel()
	const succeeded, lost = agentv1.EvalState_EVAL_STATE_SUCCEEDED, agentv1.EvalState_EVAL_STATE_FAILED
	for name, tt := range map[string]struct {
		verdict func(sample string, epoch, attempt int) *agentv1.Run
		change  func(*agentv1.EvalSpec)
		want    agentv1.EvalState
		says    string
	}{
		"every sample fails":             {func(string, int, int) *agentv1.Run { return failed() }, nil, lost, "2 of 2 samples ended with an error, the first: sample 1, epoch 1: broken"},
		"no scorer could judge a sample": {func(string, int, int) *agentv1.Run { return unscored() }, nil, lost, "0 of 2 samples ended with an error"},
		"one sample is scored": {func(sample string, _, _ int) *agentv1.Run {
			if sample == "1" {
				return scored("I")
			}
			return failed()
		}, nil, succeeded, ""},
		"nothing was to be scored": {func(string, int, int) *agentv1.Run { return failed() }, func(s *agentv1.EvalSpec) { s.Scorers = nil }, succeeded, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := start(t, tt.verdict)
			s := spec(2)
			s.FailOnError = never()
			if tt.change != nil {
				tt.change(s)
			}
			made, err := b.engine.Create(t.Context(), "default", s, "", false)
			require.NoError(t, err)
			end := b.ended(t, made.Eval.GetName()).Eval
			assert.Equal(t, tt.want, end.GetState())
			if tt.want == lost {
				assert.Equal(t, "nothing was scored", end.GetStateReason())
				assert.Equal(t, rpcerr.ReasonName(errorsv1.ErrorReason_ERROR_REASON_NOTHING_SCORED), end.GetError().GetReason())
				assert.Contains(t, end.GetError().GetMessage(), tt.says)
			}
			if len(s.GetScorers()) > 0 {
				assert.Equal(t, tt.want == succeeded, end.GetResults().GetScores()[0].GetMetrics()[0].Value != nil, "a metric of nothing has no value")
			}
			asJSON, err := protojson.Marshal(end)
			require.NoError(t, err)
			assert.NotContains(t, string(asJSON), "NaN")
		})
	}
}

// Two models may have one name and differ in their configuration.
func TestAModelWithoutAScoreIsNotHiddenByAnother(t *testing.T) {
	t.Parallel()
	for _, second := range []string{"mockllm/other", spec(1).GetModels()[0].GetModel()} {
		b := start(t, nil)
		var other bool
		b.runs.verdict = func(string, int, int) *agentv1.Run { // Runs are made by model: the second one's after the first one's.
			defer func() { other = true }()
			if other {
				return failed()
			}
			return scored("C")
		}
		s := spec(1)
		s.FailOnError, s.MaxSamples = never(), new(int32(1))
		s.Models = append(s.Models, &agentv1.ModelRef{Model: second, Account: "second"})
		made, err := b.engine.Create(t.Context(), "default", s, "", false)
		require.NoError(t, err)
		end := b.ended(t, made.Eval.GetName()).Eval
		assert.Equal(t, agentv1.EvalState_EVAL_STATE_FAILED, end.GetState())
		assert.Equal(t, "nothing was scored of "+second, end.GetStateReason())
		assert.Contains(t, end.GetError().GetMessage(), "no sample of "+second+" was scored")
	}
}

func TestAScorerThatComparesRefusesSamplesWithoutATarget(t *testing.T) {
	t.Parallel()
	b := start(t, func(string, int, int) *agentv1.Run { return scored("C") })
	for _, scorer := range []*agentv1.ScorerRef{
		{Name: "match"},
		{Name: "includes"},
		{Name: "exact"},
		{Name: "f1"},
		{Name: "choice"},
		{Name: "answer", ParamsJson: `{"pattern":"line"}`},
		{Name: "pattern", ParamsJson: `{"pattern":"x"}`},
		{Name: "exec", ParamsJson: `{"program":"assert {completion} == {target}"}`},
		{Name: "exec", ParamsJson: `{"command":"./check.sh","files":{"want.txt":"{target}"}}`},
	} {
		for name, target := range map[string]*agentv1.Target{
			"none": nil, "an empty list": {List: true}, "a blank one": {Values: []string{" "}}, "a blank one among others": {Values: []string{"A", ""}, List: true},
		} {
			blank, none := len(target.GetValues()) > 0, "none or a blank one"
			if scorer.GetName() == "exec" {
				none = "none"
			}
			s := spec(8)
			s.Scorers = []*agentv1.ScorerRef{scorer}
			for _, sample := range s.GetDataset().GetInline().GetSamples()[1:] {
				sample.Target = target
			}
			for _, check := range []bool{true, false} {
				if blank && scorer.GetName() == "exec" {
					_, err := b.engine.Create(t.Context(), "default", s, "", true)
					require.NoError(t, err, "a program may expect an empty target")
					break
				}
				_, err := b.engine.Create(t.Context(), "default", s, "", check)
				require.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST), "%s, %s: %v", scorer.GetName(), name, err)
				assert.ErrorContains(t, err, "the scorer "+scorer.GetName()+" needs a target, and 7 of 8 samples have "+none+": 2, 3, 4, 5, 6 and 2 more")
			}
		}
	}
	rows, err := b.journals.List(t.Context(), journal.Query{})
	require.NoError(t, err)
	assert.Empty(t, rows, "nothing was made")
}

func TestWarningsAreJournaledOnceForEachModel(t *testing.T) {
	t.Parallel()
	b := start(t, func(string, int, int) *agentv1.Run { return scored("C") })
	s := spec(3)
	s.Config = &modelv1.GenerateConfig{Temperature: new(0.3)}
	s.Models = append(s.Models, &agentv1.ModelRef{Model: "mockllm/other"})
	for _, sample := range s.GetDataset().GetInline().GetSamples() { // Each is checked by itself.
		sample.Sandbox = &sandboxv1.SandboxSpec{}
	}
	checked, err := b.engine.Create(t.Context(), "default", s, "", true)
	require.NoError(t, err)
	made, err := b.engine.Create(t.Context(), "default", s, "", false)
	require.NoError(t, err)
	for _, e := range []*agentv1.Eval{checked.Eval, made.Eval, b.ended(t, made.Eval.GetName()).Eval} {
		require.Len(t, e.GetWarnings(), 2)
		assert.Equal(t, "temperature is not sent to mockllm/other", e.GetWarnings()[1].GetMessage())
	}
}

func TestASumOverPartlyPricedModelsSaysSo(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		costs   map[string]*float64
		partial bool
	}{
		"all are known":     {map[string]*float64{"a/a": new(0.5), "b/b": new(0.0)}, false},
		"one is not known":  {map[string]*float64{"a/a": new(0.5), "b/b": nil}, true},
		"none of two known": {map[string]*float64{"a/a": nil, "b/b": nil}, false},
	} {
		b := start(t, func(string, int, int) *agentv1.Run {
			run := scored("C")
			run.Usage = map[string]*modelv1.ModelUsage{}
			for model, cost := range tt.costs {
				run.Usage[model] = &modelv1.ModelUsage{TotalTokens: 10, TotalCost: cost}
			}
			return run
		})
		made, err := b.engine.Create(t.Context(), "default", spec(1), "", false)
		require.NoError(t, err)
		assert.Equal(t, tt.partial, b.ended(t, made.Eval.GetName()).Eval.GetProgress().GetCostPartial(), name)
	}
}

func TestAProgramThatNamesNoTargetNeedsNone(t *testing.T) {
	t.Parallel()
	b := start(t, func(string, int, int) *agentv1.Run { return scored("C") })
	s := spec(2)
	s.Scorers = []*agentv1.ScorerRef{{Name: "exec", ParamsJson: `{"program":"import target"}`}}
	for _, sample := range s.GetDataset().GetInline().GetSamples() {
		sample.Target = nil
	}
	_, err := b.engine.Create(t.Context(), "default", s, "", true)
	require.NoError(t, err)
}

// All samples have the same models: those with a sandbox of their own have that checked, and no model again.
func TestEachModelIsCheckedOnce(t *testing.T) {
	t.Parallel()
	b := start(t, func(string, int, int) *agentv1.Run { return scored("C") })
	two := spec(4)
	two.Models = []*agentv1.ModelRef{{Model: "mockllm/one"}, {Model: "mockllm/two"}}
	for _, sample := range two.GetDataset().GetInline().GetSamples()[:3] {
		sample.Sandbox = &sandboxv1.SandboxSpec{Driver: "local"}
	}
	_, err := b.engine.Create(t.Context(), "default", two, "", true)
	require.NoError(t, err)
	assert.Equal(t, []string{"mockllm/one", "mockllm/two", "sandboxes of sample 2", "sandboxes of sample 3"}, b.runs.checked)
}
