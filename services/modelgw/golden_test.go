package modelgw_test

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/config"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/goldentest"
	"github.com/evalfleet/evalfleet/services/modelgw"
)

// TestGoldenPrices: prices in the configuration; the prices that a call has out.
func TestGoldenPrices(t *testing.T) {
	t.Parallel()
	isPrice := func(c goldentest.Case) bool { return c.Op() == "parse_prices" }
	cases := slices.DeleteFunc(goldentest.Load(t, "core/cost.jsonl"), func(c goldentest.Case) bool { return !isPrice(c) })
	goldentest.Run(t, "prices", cases, func(t *goldentest.T, c goldentest.Case) {
		document, err := json.Marshal(map[string]any{"prices": map[string]any{"mockllm/model": c.At("input")}})
		require.NoError(t, err)
		var cfg modelgw.Config
		cfg.SetDefaults()
		if err = config.Decode(&cfg, document); err == nil {
			err = cfg.Validate()
		}
		if c.At("expect", "error") != nil {
			require.Error(t, err)
			return
		}
		require.NoError(t, err)
		g := start(t, func(with *modelConfig, _ *modelDeps) { with.Prices = cfg.Prices })
		answer, err := g.models.Generate(t.Context(), &modelv1.GenerateRequest{Parent: project, Model: "mockllm/model", ValidateOnly: true})
		require.NoError(t, err)
		prices := answer.GetPrices()
		t.Equal(c.At("expect"), map[string]any{
			"input": prices.GetInput(), "output": prices.GetOutput(),
			"input_cache_write": prices.GetInputCacheWrite(), "input_cache_read": prices.GetInputCacheRead(),
		})
	})
}
