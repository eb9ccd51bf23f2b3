package turn_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/ownertest"
)

func TestGenerate(t *testing.T) {
	t.Parallel()
	f := newFleet(t).start()
	f.Models.Answer = ownertest.ByTurn(ownertest.Says("Hello."))
	s := spec(step("system_message", `{"template": "Be brief, {name}."}`), step("generate", ""))
	s.MetadataJson = `{"name": "Ada"}`
	s.Scorers = []*agentv1.ScorerRef{{Name: "includes"}}
	s.Target = &agentv1.Target{Values: []string{"Hello"}}
	got := f.Finish(f.Create(s).Name)

	assert.Equal(t, agentv1.RunState_RUN_STATE_SUCCEEDED, got.Phase)
	assert.Equal(t, []string{"S:Be brief, Ada.", "U:Start.", "A:Hello."}, texts(got.Messages()))
	assert.Equal(t, "Hello.", got.Output().GetCompletion())
	assert.Equal(t, "C", got.FinalScores()[0].GetScore().GetValue().GetText())
	assert.Equal(t, int64(15), got.Total.GetTotalTokens())
	assert.Equal(t, 1, got.Turns)
	f.Models.CheckOnce(t)
}
