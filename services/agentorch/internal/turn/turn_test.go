package turn_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
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

// The configuration of a run is that of each of its model calls, and bounds the results of its tools.
func TestTheConfigurationHoldsForEveryTurn(t *testing.T) {
	t.Parallel()
	f := newFleet(t).start()
	f.Models.Answer = ownertest.ByTurn(ownertest.Says("go", call("c1", "note", `{}`)), ownertest.Says("go", call("c2", "note", `{}`)), ownertest.Says("end"))
	var bounds []int64
	f.Tools.Tools["note"] = ownertest.Tool{Run: func(_ context.Context, c ownertest.Call) (*toolv1.ToolResult, error) {
		bounds = append(bounds, c.Request.GetMaxOutputBytes())
		return ownertest.Text("noted"), nil
	}}
	s := spec(step("generate", "", "note"))
	s.Config = &modelv1.GenerateConfig{Temperature: new(0.5), MaxToolOutput: new(int64(77))}
	f.Finish(f.Create(s).Name)

	assert.Equal(t, []int64{77, 77}, bounds)
	requests := f.Models.Requests()
	assert.Len(t, requests, 3)
	for _, r := range requests {
		assert.InDelta(t, 0.5, r.GetConfig().GetTemperature(), 0)
	}
}
