package chat_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/evalfleet/evalfleet/pkg/chat"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
)

// A provider, a script or a worker says what it likes.
func TestUsageThatCannotBeIsUnknown(t *testing.T) {
	t.Parallel()
	for document, want := range map[string]*modelv1.ModelUsage{
		`{"input_tokens": -1, "output_tokens": 2, "total_tokens": 1}`:                                    nil,
		`{"input_tokens": 1, "output_tokens": -2, "total_tokens": 3}`:                                    nil,
		`{"input_tokens": 1, "output_tokens": 2, "total_tokens": -3}`:                                    nil,
		`{"input_tokens": 1, "output_tokens": 2, "total_tokens": 3, "input_tokens_cache_read": -4}`:      {InputTokens: 1, OutputTokens: 2, TotalTokens: 3},
		`{"input_tokens": 1, "output_tokens": 2, "total_tokens": 3, "input_tokens_cache_write": -4}`:     {InputTokens: 1, OutputTokens: 2, TotalTokens: 3},
		`{"input_tokens": 1, "output_tokens": 2, "total_tokens": 3, "reasoning_tokens": -4}`:             {InputTokens: 1, OutputTokens: 2, TotalTokens: 3},
		`{"input_tokens": 1, "output_tokens": 2, "total_tokens": 3, "total_cost": -0.5}`:                 {InputTokens: 1, OutputTokens: 2, TotalTokens: 3},
		`{"input_tokens": 9223372036854775807, "output_tokens": 2, "total_tokens": 9223372036854775807}`: {InputTokens: 1 << 53, OutputTokens: 2, TotalTokens: 1 << 53},
	} {
		usage, err := chat.ParseUsage([]byte(document))
		require.NoError(t, err, document)
		assert.True(t, proto.Equal(want, usage), "%s: %v", document, usage)
	}
	assert.Nil(t, chat.KnownUsage(nil))
	for _, cost := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), -1} {
		usage := chat.KnownUsage(&modelv1.ModelUsage{TotalTokens: 3, TotalCost: &cost})
		assert.True(t, proto.Equal(&modelv1.ModelUsage{TotalTokens: 3}, usage), "%v: %v", cost, usage)
	}
}

func TestSumsOfUsageNeitherShrinkNorOverflow(t *testing.T) {
	t.Parallel()
	most := &modelv1.ModelUsage{
		InputTokens: math.MaxInt64, OutputTokens: math.MaxInt64, TotalTokens: math.MaxInt64, InputTokensCacheWrite: new(int64(math.MaxInt64)),
		InputTokensCacheRead: new(int64(math.MaxInt64)), ReasoningTokens: new(int64(math.MaxInt64)), TotalCost: new(math.MaxFloat64),
	}
	least := &modelv1.ModelUsage{
		InputTokens: math.MinInt64, OutputTokens: -1, TotalTokens: -5, InputTokensCacheWrite: new(int64(-1)),
		InputTokensCacheRead: new(int64(-1)), ReasoningTokens: new(int64(-1)), TotalCost: new(math.NaN()),
	}
	sum := most
	for range 1000 {
		sum = chat.AddUsage(chat.AddUsage(sum, most), least)
	}
	for _, n := range []int64{
		sum.GetInputTokens(), sum.GetOutputTokens(), sum.GetTotalTokens(), sum.GetInputTokensCacheWrite(), sum.GetInputTokensCacheRead(), sum.GetReasoningTokens(), chat.InputTokens(sum),
	} {
		assert.EqualValues(t, 1<<53, n)
	}
	assert.InDelta(t, math.MaxFloat64, sum.GetTotalCost(), 0)
	assert.Positive(t, chat.InputTokens(most))
	alone := chat.AddUsage(nil, least)
	assert.Zero(t, alone.GetTotalTokens(), "of one, too: %v", alone)
	assert.Zero(t, alone.GetTotalCost())
}

func TestALongInputHasPricesOfItsOwn(t *testing.T) {
	t.Parallel()
	prices := &modelv1.Prices{Input: 1, Output: 2, InputCacheRead: 0.1, LongInputTokens: 1000, LongInput: &modelv1.Prices{Input: 10, Output: 20, InputCacheRead: 1}}
	usage := &modelv1.ModelUsage{InputTokens: 900, InputTokensCacheRead: new(int64(100)), OutputTokens: 50}
	assert.InDelta(t, (900+50*2+10)/1e6, chat.Cost(prices, usage, false), 1e-12)
	usage.InputTokens++
	assert.InDelta(t, (9010+50*20+100)/1e6, chat.Cost(prices, usage, false), 1e-12, "all of its tokens")
}

func TestASumSaysWhereAPriceIsMissing(t *testing.T) {
	t.Parallel()
	priced, unpriced, empty := &modelv1.ModelUsage{TotalTokens: 1, TotalCost: new(0.5)}, &modelv1.ModelUsage{TotalTokens: 1}, &modelv1.ModelUsage{}
	for name, test := range map[string]struct {
		all     []*modelv1.ModelUsage
		partial bool
	}{
		"all have one":               {[]*modelv1.ModelUsage{priced, priced}, false},
		"none has one":               {[]*modelv1.ModelUsage{unpriced, unpriced}, false},
		"one has none":               {[]*modelv1.ModelUsage{priced, unpriced}, true},
		"the first has none":         {[]*modelv1.ModelUsage{unpriced, unpriced, priced}, true},
		"and later ones have":        {[]*modelv1.ModelUsage{unpriced, priced, priced, nil}, true},
		"what used nothing has none": {[]*modelv1.ModelUsage{empty, priced, nil, empty}, false},
	} {
		var sum *modelv1.ModelUsage
		for _, u := range test.all {
			sum = chat.AddUsage(sum, u)
		}
		assert.Equal(t, test.partial, sum.GetCostPartial(), name)
		assert.Equal(t, test.partial, chat.CostPartial(test.all...), name)
	}
}
