package cli

import (
	"testing"

	"github.com/stretchr/testify/assert"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
)

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
