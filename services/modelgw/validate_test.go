package modelgw_test

import (
	"math"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/config"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/modelgw"
)

// What a call must fail with, and what of it is not sent, is said without one.
func TestACallIsCheckedWithoutOne(t *testing.T) {
	t.Parallel()
	vendor := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a provider was called") }))
	t.Cleanup(vendor.Close)
	g := start(t, func(c *modelConfig, _ *modelDeps) {
		c.Anthropic.APIKey, c.Anthropic.BaseURL = config.NewSecret("k"), vendor.URL
		c.OpenAI.APIKey = config.NewSecret("k")
		c.Prices = map[string]modelgw.Price{"openai/gpt-4o": {Input: new(2.5), Output: new(10.0)}}
		c.Budgets = map[string]modelgw.Budget{"projects/poor": {MaxCost: new(1.0)}}
	})
	check := func(parent, model, args string, c *modelv1.GenerateConfig) (*modelv1.GenerateResponse, error) {
		return g.models.Generate(t.Context(), &modelv1.GenerateRequest{Parent: parent, Model: model, ModelArgsJson: args, Config: c, ValidateOnly: true})
	}

	answer, err := check(project, "anthropic/claude-sonnet-4-5", "", &modelv1.GenerateConfig{Temperature: new(0.3), Seed: new(int64(4)), TopP: new(1.0)})
	require.NoError(t, err)
	assert.Equal(t, []string{"temperature", "seed"}, answer.GetUnsentOptions(), "1 is what top_p is anyway")
	assert.Equal(t, []string{
		"temperature is not sent to anthropic/claude-sonnet-4-5, which does not take it", "seed is not sent to anthropic/claude-sonnet-4-5, which does not take it",
	}, answer.GetWarnings())
	assert.Nil(t, answer.GetConfig().Temperature)
	assert.Nil(t, answer.GetConfig().TopP)
	assert.NotNil(t, answer.GetConfig().MaxTokens, "defaults are filled in")
	assert.Nil(t, answer.GetPrices())

	answer, err = check(project, "openai/gpt-4o", "", &modelv1.GenerateConfig{TopK: new(int32(3)), Temperature: new(0.3)})
	require.NoError(t, err)
	assert.Equal(t, []string{"top_k"}, answer.GetUnsentOptions())
	assert.InDelta(t, 2.5, answer.GetPrices().GetInput(), 0)

	answer, err = check(project, "anthropic/claude-sonnet-4-5", "", &modelv1.GenerateConfig{ExtraBodyJson: new(`{"own":7,"service_tier":"auto"}`)})
	require.NoError(t, err)
	assert.Equal(t, []string{"extra_body.own"}, answer.GetUnsentOptions())
	assert.Equal(t, []string{"extra_body.own is not sent to anthropic/claude-sonnet-4-5, which does not take it"}, answer.GetWarnings())
	assert.JSONEq(t, `{"service_tier":"auto"}`, answer.GetConfig().GetExtraBodyJson())

	answer, err = check(project, "openai/gpt-4o", "", &modelv1.GenerateConfig{
		CachePrompt: modelv1.CachePrompt_CACHE_PROMPT_ON, ExtraBodyJson: new(`{"metadata":{}}`),
	})
	require.NoError(t, err)
	assert.Equal(t, []string{"cache_prompt", "extra_body.metadata"}, answer.GetUnsentOptions())
	assert.Nil(t, answer.GetConfig().ExtraBodyJson, "nothing of it is left")

	for name, tt := range map[string]struct {
		parent, model, args string
		config              *modelv1.GenerateConfig
		reason              errorsv1.ErrorReason
		says                string
	}{
		"an API that is not built": {project, "openai/gpt-5", "", nil, errorsv1.ErrorReason_ERROR_REASON_CAPABILITY_UNSUPPORTED, "responses_api=false"},
		"an argument":              {project, "openai/gpt-4o", `{"respones": 1}`, nil, errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST, "respones"},
		"a temperature that is no number": {
			project, "mockllm/model", "", &modelv1.GenerateConfig{Temperature: new(math.NaN())}, errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST, "config.temperature: must be a finite number",
		},
		"a batch": {
			project, "mockllm/model", "", &modelv1.GenerateConfig{Batch: &modelv1.BatchSetting{Enabled: true}}, errorsv1.ErrorReason_ERROR_REASON_NOT_BUILT_YET, "config.batch",
		},
		"a batch by its size alone": {
			project, "mockllm/model", "", &modelv1.GenerateConfig{Batch: &modelv1.BatchSetting{Size: new(int32(5))}}, errorsv1.ErrorReason_ERROR_REASON_NOT_BUILT_YET, "config.batch",
		},
		"thinking that the model does not know": {
			project, "anthropic/claude-opus-4-8", "", &modelv1.GenerateConfig{ReasoningTokens: new(int64(2048))}, errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST, "reasoning_effort",
		},
		"a budget of dollars and no price": {
			"projects/poor", "mockllm/model", "", nil, errorsv1.ErrorReason_ERROR_REASON_PRICE_UNKNOWN, "the budget of projects/poor bounds dollars, and the price of mockllm/model is not known",
		},
	} {
		_, err := check(tt.parent, tt.model, tt.args, tt.config)
		assert.True(t, rpcerr.Is(err, tt.reason), "%s: %v", name, err)
		assert.ErrorContains(t, err, tt.says, name)
	}
	_, err = check(project, "openai/gpt-5", `{"responses_api": false}`, nil)
	require.NoError(t, err)
	_, err = check("projects/poor", "openai/gpt-4o", "", nil)
	require.NoError(t, err)
}

func TestABudgetOfDollarsRefusesAModelWithoutAPrice(t *testing.T) {
	t.Parallel()
	g := start(t, func(c *modelConfig, _ *modelDeps) {
		c.Prices = map[string]modelgw.Price{"mockllm/priced": {Input: new(1.0), Output: new(2.0)}}
	})
	_, err := g.models.Generate(t.Context(), ask("", "q"))
	require.NoError(t, err)
	_, err = g.limits.UpdateBudget(t.Context(), &modelv1.UpdateBudgetRequest{Budget: &modelv1.Budget{Name: project + "/budgets/project", MaxCost: new(1.0)}})
	require.NoError(t, err)
	_, err = g.models.Generate(t.Context(), ask("", "q"))
	require.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_PRICE_UNKNOWN), err)
	priced := ask("", "q")
	priced.Model = "mockllm/priced"
	_, err = g.models.Generate(t.Context(), priced)
	require.NoError(t, err)
}
