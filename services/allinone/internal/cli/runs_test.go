package cli

import (
	"testing"

	"github.com/stretchr/testify/assert"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
)

// A sum without the tokens of a model that has no price says so.
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

// What waits for a person is not shown as interrupted, since a server alone would not continue it.
func TestWithoutAServerWhatWaitsForAPersonIsNotInterrupted(t *testing.T) {
	t.Parallel()
	s := &session{idle: true}
	waits := func(reason string) *agentv1.Run {
		return &agentv1.Run{State: agentv1.RunState_RUN_STATE_WAITING, Wait: &agentv1.RunWait{Reason: reason}}
	}
	assert.Equal(t, "waiting", s.runState(waits("decision")))
	assert.Equal(t, "interrupted", s.runState(waits("worker")))
	assert.Equal(t, "paused", s.evalState(&agentv1.Eval{State: agentv1.EvalState_EVAL_STATE_PAUSED}))
	assert.Equal(t, "interrupted", s.evalState(&agentv1.Eval{State: agentv1.EvalState_EVAL_STATE_RUNNING}))
}
