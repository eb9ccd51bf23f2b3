package generate_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/dialect"
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
	g.bound(t, "projects/p", budget.Bounds{MaxCost: new(1.0)})
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
	for name, said := range map[string]*modelv1.ModelUsage{"no usage": nil, "an empty one": {}} {
		g := newRig(func(ctx context.Context, r *provider.Request) (*provider.Response, error) {
			response, err := says("an answer of some forty characters in all")(ctx, r)
			response.Output.Usage = said
			return response, err
		})
		response, err := g.generate(t.Context(), g.call(nil))
		require.NoError(t, err, name)
		assert.Same(t, said, response.Output.GetUsage(), name)
		assert.Equal(t, int64(1+10), g.budgets.List("projects/p", "", 9)[0].Tokens, name)
	}
}

// The price of long inputs is for one long input, and not for a call whose attempts had as much together.
func TestAStreamThatBreaksOffHasThePriceOfItsOwnInput(t *testing.T) {
	t.Parallel()
	breaksOff := func(_ context.Context, r *provider.Request) (*provider.Response, error) {
		r.Unfinished(&modelv1.ModelUsage{InputTokens: 60, TotalTokens: 60}, 0)
		return nil, &provider.Error{Provider: "test", Class: provider.Transient, Status: 503}
	}
	synctest.Test(t, func(t *testing.T) {
		g := newRig(breaksOff, breaksOff, says("x"))
		g.prices = generate.Prices{"test/m": {Input: 1, LongInputTokens: 99, LongInput: &modelv1.Prices{Input: 10}}}
		_, err := g.generate(t.Context(), g.call(nil))
		require.NoError(t, err)
		spent := g.budgets.List("projects/p", "", 9)[0]
		assert.Equal(t, int64(60+60+5), spent.Tokens)
		assert.InDelta(t, (60+60+3)/1e6, spent.Cost, 1e-12)
		assert.False(t, spent.CostPartial)
	})
}

// Writes to a cache for an hour cost more than others, and an answer in a mode with prices of its own has an unknown
// cost, which is said.
func TestAnAnswerIsPricedAsItIsBilled(t *testing.T) {
	t.Parallel()
	prices := generate.Prices{
		"test/m": {Input: 1, Output: 1, InputCacheWrite: 10, LongInputTokens: 99, LongInput: &modelv1.Prices{InputCacheWrite: 10}, Modes: map[string]*modelv1.Prices{
			"fast": {InputCacheWrite: 30, LongInputTokens: 99, LongInput: &modelv1.Prices{InputCacheWrite: 20}}, "priority": {InputCacheWrite: 30},
		}},
	}
	passes := []*modelv1.ModelUsage{{InputTokensCacheWrite: new(int64(60))}, {InputTokensCacheWrite: new(int64(40))}}
	for name, tt := range map[string]struct {
		billing dialect.Billing
		want    *float64
	}{
		"plain":                           {dialect.Billing{}, new(100 * 10 / 1e6)},
		"for an hour":                     {dialect.Billing{LongCacheWrite: new(int64(40))}, new((60*10 + 40*16) / 1e6)},
		"none of them":                    {dialect.Billing{LongCacheWrite: new(int64(0))}, new(100 * 10 / 1e6)},
		"a mode":                          {dialect.Billing{Mode: "fast"}, new(100 * 20 / 1e6)},
		"both":                            {dialect.Billing{Mode: "fast", LongCacheWrite: new(int64(40))}, new((60*20 + 40*32) / 1e6)},
		"another mode":                    {dialect.Billing{Mode: "fast us"}, nil},
		"passes, none of which is long":   {dialect.Billing{Mode: "fast", Passes: passes}, new(100 * 30 / 1e6)},
		"passes in a mode for short ones": {dialect.Billing{Mode: "priority", Passes: passes}, new(100 * 30 / 1e6)},
		"more input than the mode has a price for": {dialect.Billing{Mode: "priority"}, nil},
	} {
		g := newRig(says("x"))
		response, err := generate.Spend(g.budgets, func() generate.Prices { return prices })(func(context.Context, *generate.Call, *generate.Outcome) (*provider.Response, error) {
			return &provider.Response{Billing: tt.billing, Output: &modelv1.ModelOutput{Usage: &modelv1.ModelUsage{InputTokensCacheWrite: new(int64(100)), TotalTokens: 100}}}, nil
		})(t.Context(), g.call(nil), &generate.Outcome{})
		require.NoError(t, err, name)
		got := response.Output.GetUsage().TotalCost
		if tt.want == nil {
			assert.Nil(t, got, name)
			assert.Contains(t, response.Warnings[0], "the cost is unknown")
			continue
		}
		require.NotNil(t, got, name)
		assert.InDelta(t, *tt.want, *got, 1e-12, name)
		assert.Empty(t, response.Warnings)
	}
}
