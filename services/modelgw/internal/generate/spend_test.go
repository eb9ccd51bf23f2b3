package generate_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/budget"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/generate"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

// An answer costs what the model takes that gave it. Where its price is not known, the cost is not known either.
func TestAnAnswerOfAFallbackModelHasItsPrice(t *testing.T) {
	t.Parallel()
	prices := generate.Prices{"test/m": {Input: 1, Output: 1}, "test/dear": {Input: 10, Output: 10}}
	for answered, want := range map[string]*float64{"": new(5e-6), "dear": new(50e-6), "unknown": nil} {
		g := newRig(func(ctx context.Context, r *provider.Request) (*provider.Response, error) {
			response, err := says("x")(ctx, r)
			if answered != "" {
				response.Output.Fallback = &modelv1.ModelFallback{Model: "m", FallbackModel: answered}
			}
			return response, err
		})
		spend := generate.Spend(g.budgets, func() generate.Prices { return prices })(func(ctx context.Context, _ *generate.Call, _ *generate.Outcome) (*provider.Response, error) {
			return g.provider.Generate(ctx, nil)
		})
		response, err := spend(t.Context(), g.call(nil), &generate.Outcome{})
		require.NoError(t, err)
		if want == nil {
			assert.Nil(t, response.Output.GetUsage().TotalCost, answered)
			continue
		}
		require.NotNil(t, response.Output.GetUsage().TotalCost, answered)
		assert.InDelta(t, *want, response.Output.GetUsage().GetTotalCost(), 1e-12, answered)
	}
}

func TestABudgetOfDollarsRefusesAFallbackModelWithoutAPrice(t *testing.T) {
	t.Parallel()
	g := newRig(says("x"))
	prices := generate.Prices{"test/m": {Input: 1}, "test/priced": {Input: 1}}
	call := g.call(&modelv1.GenerateConfig{FallbackModels: &modelv1.StringList{Values: []string{"priced", "unpriced"}}})
	require.NoError(t, generate.Affordable(g.budgets, prices, call), "nothing is bounded")
	g.budgets.Set("projects/p", budget.Bounds{MaxCost: new(1.0)})
	err := generate.Affordable(g.budgets, prices, call)
	assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_PRICE_UNKNOWN), "%v", err)
	require.ErrorContains(t, err, "the price of test/unpriced is not known")
	call.Config.FallbackModels.Values = []string{"priced"}
	require.NoError(t, generate.Affordable(g.budgets, prices, call))
}

// A provider that says nothing of usage, or what cannot be, is not free of a budget. The answer says no more than the
// provider.
func TestAnAnswerWithoutUsageIsChargedAnEstimate(t *testing.T) {
	t.Parallel()
	g := newRig(func(ctx context.Context, r *provider.Request) (*provider.Response, error) {
		response, err := says("an answer of some forty characters in all")(ctx, r)
		response.Output.Usage = nil
		return response, err
	})
	response, err := g.generate(t.Context(), g.call(nil))
	require.NoError(t, err)
	assert.Nil(t, response.Output.GetUsage())
	assert.Equal(t, int64(1+10), g.budgets.List("projects/p")[0].Tokens)
}
