package cli

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// A sum that omits the tokens of a model without a price states that.
func TestTheCostOfARunIsMarkedWhereItIsPartial(t *testing.T) {
	t.Parallel()
	priced, unpriced := &modelv1.ModelUsage{TotalTokens: 10, TotalCost: new(0.25)}, &modelv1.ModelUsage{TotalTokens: 10}
	for want, usage := range map[string]map[string]*modelv1.ModelUsage{
		"":           {"a/b": unpriced},
		" · $0.25":   {"a/b": priced, "a/unused": {}},
		" · ≥ $0.25": {"a/b": priced, "a/c": unpriced},
		" · $0.50":   {"a/b": priced, "a/c": priced},
	} {
		assert.Equal(t, want, cost(&agentv1.Run{Usage: usage}))
	}
}

// A run that waits for a person is not shown as interrupted, since a server alone would not continue it.
func TestWithoutAServerWhatWaitsForAPersonIsNotInterrupted(t *testing.T) {
	t.Parallel()
	s := &session{idle: true}
	waits := func(reason agentv1.WaitReason) *agentv1.Run {
		return &agentv1.Run{State: agentv1.RunState_RUN_STATE_WAITING, Wait: &agentv1.RunWait{Reason: reason}}
	}
	assert.Equal(t, "waiting", s.runState(waits(agentv1.WaitReason_WAIT_REASON_DECISION)))
	assert.Equal(t, "interrupted", s.runState(waits(agentv1.WaitReason_WAIT_REASON_WORKER)))
	assert.Equal(t, "paused", s.evalState(&agentv1.Eval{State: agentv1.EvalState_EVAL_STATE_PAUSED}))
	assert.Equal(t, "interrupted", s.evalState(&agentv1.Eval{State: agentv1.EvalState_EVAL_STATE_RUNNING}))
}

// The server names fields of its API; the user of `run` sees the flags.
func TestErrorsAboutARunNameItsFlags(t *testing.T) {
	t.Parallel()
	for api, want := range map[string]string{
		`spec.model.model_args_json: unknown argument "x"`: `-M: unknown argument "x"`,
		`spec.model.model: no provider "foo"`:              `--model: no provider "foo"`,
		`spec.model.model: "foo" is no model`:              `--model: "foo" is no model`,
		`spec.steps[0].name: unknown agent "reac"`:         `--agent: unknown agent "reac"`,
		`spec.tools[0].name: unknown tool "bsh"`:           `--tool: unknown tool "bsh"`,
		`spec.sandboxes["default"].driver: unknown driver`: `--sandbox: unknown driver`,

		"spec.limits: no":    "limits: no",
		"the server's fault": "the server's fault",
	} {
		require.EqualError(t, inFlagWords(rpcerr.InvalidRequest("%s", api)), want)
	}
	require.NoError(t, inFlagWords(nil))
}
