package modelgw_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/config"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/modelgw"
)

// What is left out of a price is refused or means the price of input: it is never free.
func TestAPriceLeavesNothingFree(t *testing.T) {
	t.Parallel()
	priced := func(document string) (modelgw.Config, error) {
		var cfg modelgw.Config
		cfg.SetDefaults()
		require.NoError(t, config.Decode(&cfg, []byte(document)))
		return cfg, cfg.Validate()
	}
	for document, fault := range map[string]string{
		`prices: {mockllm/model: {output: 1}}`:                                   "prices.mockllm/model.input: is missing; give 0 for what costs nothing",
		`prices: {mockllm/model: {input: 1}}`:                                    "prices.mockllm/model.output: is missing",
		`prices: {mockllm/model: {input: -1, output: 1}}`:                        "prices.mockllm/model.input: must be a number that is not negative",
		`prices: {mockllm/model: {input: 1, output: .inf}}`:                      "prices.mockllm/model.output: must be a number",
		`prices: {mockllm/model: {input: 1, output: 1, input_cache_read: .nan}}`: "prices.mockllm/model.input_cache_read: must be a number",
	} {
		_, err := priced(document)
		require.ErrorContains(t, err, fault, document)
	}

	cfg, err := priced(`prices: {mockllm/model: {input: 2, output: 0, input_cache_read: 0.5}}`)
	require.NoError(t, err)
	g := start(t, func(with *modelConfig, _ *modelDeps) { with.Prices = cfg.Prices })
	answer, err := g.models.Generate(t.Context(), &modelv1.GenerateRequest{Parent: project, Model: "mockllm/model", ValidateOnly: true})
	require.NoError(t, err)
	prices := answer.GetPrices()
	assert.Equal(t, []float64{2, 0, 2, 0.5}, []float64{
		prices.GetInput(), prices.GetOutput(), prices.GetInputCacheWrite(), prices.GetInputCacheRead(),
	})
}

// Dollars are bounded without any configuration of prices, if the data has the model's; the configuration's come first.
func TestBuiltInPricesAreReplacedByTheConfiguration(t *testing.T) {
	t.Parallel()
	g := start(t, func(c *modelConfig, _ *modelDeps) {
		c.OpenAI.APIKey = config.NewSecret("k")
		c.Prices = map[string]modelgw.Price{"openai/gpt-5.4": {Input: new(1.0), Output: new(2.0)}, "openai/mine": {Input: new(1.0), Output: new(2.0)}}
		c.Budgets = map[string]modelgw.Budget{"projects/default": {MaxCost: new(1.0)}}
	})
	priced := func(model string) (*modelv1.Prices, error) {
		answer, err := g.models.Generate(t.Context(), &modelv1.GenerateRequest{Parent: project, Model: model, ValidateOnly: true})
		return answer.GetPrices(), err
	}
	built, err := priced("openai/gpt-5.5")
	require.NoError(t, err)
	assert.Positive(t, built.GetOutput())
	assert.Equal(t, int64(272_000), built.GetLongInputTokens())
	given, err := priced("openai/gpt-5.4")
	require.NoError(t, err)
	assert.InDelta(t, 2.0, given.GetOutput(), 0)
	assert.Nil(t, given.GetLongInput(), "nothing of the built-in prices is left")
	_, err = priced("openai/mine")
	require.NoError(t, err)
	_, err = priced("openai/gpt-5.5-2099-01-01")
	assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_PRICE_UNKNOWN), "a snapshot that is not known may cost anything: %v", err)

	for model, source := range map[string]string{"gpt-5.4": "configuration", "gpt-5.5": "LiteLLM", "gpt-5.5-2099-01-01": ""} {
		m, err := g.models.GetModel(t.Context(), &modelv1.GetModelRequest{Name: "providers/openai/models/" + model})
		require.NoError(t, err)
		assert.Contains(t, m.GetPricesSource(), source)
		assert.Equal(t, source == "", m.GetPrices() == nil, model)
	}
}

func TestAModelShowsWhatIsKnownOfIt(t *testing.T) {
	t.Parallel()
	g := start(t)
	model := func(name string) *modelv1.Model {
		m, err := g.models.GetModel(t.Context(), &modelv1.GetModelRequest{Name: name})
		require.NoError(t, err)
		return m
	}
	known := model("providers/openai/models/gpt-5")
	assert.Equal(t, []string{"openai/gpt-5", "GPT-5", "OpenAI", "2025-08-07", "2024-09-30", "medium"}, []string{
		known.GetCanonicalName(), known.GetDisplayName(), known.GetOrganization(), known.GetReleaseDate(), known.GetKnowledgeCutoffDate(), known.GetDefaultReasoningEffort(),
	})
	assert.Equal(t, []int64{400_000, 272_000, 128_000}, []int64{known.GetContextTokens(), known.GetInputTokens(), known.GetOutputTokens()})
	assert.True(t, known.GetReasoning())
	assert.Contains(t, known.GetFactsSource(), "as of 20")

	unknown := model("providers/openai/models/nosuch")
	assert.Equal(t, "openai/nosuch", unknown.GetCanonicalName())
	assert.Nil(t, unknown.ContextTokens)
	assert.Nil(t, unknown.Reasoning)
	assert.Empty(t, unknown.GetFactsSource())
	assert.Empty(t, unknown.GetPricesSource())
}
