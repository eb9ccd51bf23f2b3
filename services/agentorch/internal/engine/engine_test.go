package engine_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/testing/protocmp"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/servicetest"
)

func TestGenerate(t *testing.T) {
	t.Parallel()
	f := newFleet(t).start()
	f.Models.Answer = servicetest.ByTurn(servicetest.Says("Hello."))
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
	f.Models.Answer = servicetest.ByTurn(servicetest.Says("go", call("c1", "note", `{}`)), servicetest.Says("go", call("c2", "note", `{}`)), servicetest.Says("end"))
	var bounds []int64
	f.Tools.Tools["note"] = servicetest.Tool{Run: func(_ context.Context, c servicetest.Call) (*toolv1.ToolResult, error) {
		bounds = append(bounds, c.Request.GetMaxOutputBytes())
		return servicetest.Text("noted"), nil
	}}
	s := spec(step("generate", "", "note"))
	cached := &modelv1.CacheSetting{Enabled: true, Policy: &modelv1.CachePolicy{Expiry: "2D"}}
	s.Config = &modelv1.GenerateConfig{Temperature: new(0.5), MaxToolOutput: new(int64(77)), Cache: cached}
	f.Finish(f.Create(s).Name)

	assert.Equal(t, []int64{77, 77}, bounds)
	requests := f.Models.Requests()
	assert.Len(t, requests, 3)
	for _, r := range requests {
		assert.InDelta(t, 0.5, r.GetConfig().GetTemperature(), 0)
		assert.Empty(t, cmp.Diff(cached, r.GetConfig().GetCache(), protocmp.Transform()))
	}
}

// A role of the run is a model with a configuration of its own. The run's configuration only adds the options of
// connections, retries and the cache. Calls in the role name it, and their usage is summed under it.
func TestAModelBoundToARole(t *testing.T) {
	t.Parallel()
	f := newFleet(t).start()
	f.Models.Answer = servicetest.ByTurn(servicetest.Says("Done", call("c1", "submit", `{"answer": "42"}`)))
	s := spec(step("react", `{"model": "thinker"}`))
	s.Config = &modelv1.GenerateConfig{Temperature: new(0.9), TopK: new(int32(3)), MaxRetries: new(int32(4))}
	s.ModelRoles = map[string]*agentv1.ModelRef{"thinker": {Model: "mockllm/other", Config: &modelv1.GenerateConfig{Temperature: new(0.1)}}}
	got := f.Finish(f.Create(s).Name)

	require.Equal(t, agentv1.RunState_RUN_STATE_SUCCEEDED, got.Phase, got.Error)
	asked := f.Models.Requests()[0]
	assert.Equal(t, "mockllm/other", asked.GetModel())
	assert.Equal(t, "thinker", asked.GetAttribution().GetRole())
	assert.Empty(t, cmp.Diff(&modelv1.GenerateConfig{Temperature: new(0.1), MaxRetries: new(int32(4))}, asked.GetConfig(), protocmp.Transform()))
	assert.Equal(t, int64(15), got.RoleUsage["thinker"].GetTotalTokens())
	for event, err := range f.Events(got.Name) {
		require.NoError(t, err)
		if intent := event.GetModelIntent(); intent != nil {
			assert.Equal(t, "thinker", intent.GetRole())
		}
	}
}
