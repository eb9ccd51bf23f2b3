package modelgw_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/config"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
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
