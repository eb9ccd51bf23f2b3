package chat

import (
	"math"

	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/json/lenientjson"
)

// longCacheFactor is the price factor of a write to a cache with a lifetime of an hour.
const longCacheFactor = 1.6

// mostTokens bounds counts of tokens and their sums: JSON holds no larger number exactly.
const mostTokens = 1 << 53

// KnownUsage returns the possible part of a provider's or a script's usage, which may be nil. A count that is negative,
// and a cost that is negative, infinite or NaN, is unknown; if every usage has the count, the whole usage is unknown.
// Counts over 2^53 become 2^53. It may modify u.
func KnownUsage(u *modelv1.ModelUsage) *modelv1.ModelUsage {
	if u == nil || u.GetInputTokens() < 0 || u.GetOutputTokens() < 0 || u.GetTotalTokens() < 0 {
		return nil
	}
	u.InputTokens, u.OutputTokens, u.TotalTokens = SumTokens(u.GetInputTokens()), SumTokens(u.GetOutputTokens()), SumTokens(u.GetTotalTokens())
	for _, count := range []**int64{&u.InputTokensCacheWrite, &u.InputTokensCacheRead, &u.ReasoningTokens} {
		switch {
		case *count == nil:
		case **count < 0:
			*count = nil
		default:
			*count = new(SumTokens(**count))
		}
	}
	if cost := u.GetTotalCost(); !(cost >= 0) || math.IsInf(cost, 1) {
		u.TotalCost = nil
	}
	return u
}

// SumTokens adds counts of tokens. Negative ones count 0, and the sum is at most 2^53.
func SumTokens(counts ...int64) int64 {
	var sum int64
	for _, n := range counts {
		sum = min(sum+min(max(0, n), mostTokens), mostTokens)
	}
	return sum
}

// SumCost adds costs. Negative and NaN costs count 0, so the sum is a number.
func SumCost(costs ...float64) float64 {
	var sum float64
	for _, c := range costs {
		if c > 0 {
			sum = min(sum+c, math.MaxFloat64)
		}
	}
	return sum
}

// ParseUsage reads usage; absent counts are 0, and unknown fields are dropped.
func ParseUsage(document []byte) (*modelv1.ModelUsage, error) {
	o, err := lenientjson.Parse(document)
	if err != nil {
		return nil, err
	}
	usage := readUsage(o)
	return usage, o.Err()
}

// AddUsage returns the sum of two usages, either of which may be nil; of two nils it is nil. A count that both lack
// stays unknown. Counts and costs are added as [SumTokens] and [SumCost] do. The cost is partial if one of the two has
// tokens and no cost.
func AddUsage(a, b *modelv1.ModelUsage) *modelv1.ModelUsage {
	if a == nil && b == nil {
		return nil
	}
	if a == nil {
		a = &modelv1.ModelUsage{}
	}
	if b == nil {
		b = &modelv1.ModelUsage{}
	}
	return &modelv1.ModelUsage{
		InputTokens:           SumTokens(a.GetInputTokens(), b.GetInputTokens()),
		OutputTokens:          SumTokens(a.GetOutputTokens(), b.GetOutputTokens()),
		TotalTokens:           SumTokens(a.GetTotalTokens(), b.GetTotalTokens()),
		InputTokensCacheWrite: addKnown(a.InputTokensCacheWrite, b.InputTokensCacheWrite, SumTokens),
		InputTokensCacheRead:  addKnown(a.InputTokensCacheRead, b.InputTokensCacheRead, SumTokens),
		ReasoningTokens:       addKnown(a.ReasoningTokens, b.ReasoningTokens, SumTokens),
		TotalCost:             addKnown(a.TotalCost, b.TotalCost, SumCost),
		CostPartial:           CostPartial(a, b),
	}
}

// CostPartial reports whether the sum of the costs of usages is a lower bound, since some of them have tokens and no
// cost. A sum without any cost is unknown, and not partial.
func CostPartial(usages ...*modelv1.ModelUsage) bool {
	known, partial, unpriced := false, false, false
	for _, u := range usages {
		known = known || u != nil && u.TotalCost != nil
		partial = partial || u.GetCostPartial()
		unpriced = unpriced || u != nil && u.TotalCost == nil && u.GetTotalTokens() > 0
	}
	return known && (partial || unpriced)
}

func addKnown[T int64 | float64](a, b *T, sum func(...T) T) *T {
	if a == nil && b == nil {
		return nil
	}
	return new(sum(orZero(a), orZero(b)))
}

// InputTokens returns the tokens of the whole input, caches included.
func InputTokens(usage *modelv1.ModelUsage) int64 {
	return SumTokens(usage.GetInputTokens(), usage.GetInputTokensCacheRead(), usage.GetInputTokensCacheWrite())
}

// ContextTokens returns how many tokens of context a call's input took, and whether that is known.
func ContextTokens(output *modelv1.ModelOutput) (tokens int64, known bool) {
	switch {
	case output.InputContextTokens != nil:
		return output.GetInputContextTokens(), true
	case output.GetUsage() != nil:
		return InputTokens(output.GetUsage()), true
	default:
		return 0, false
	}
}

// LongWriteCost returns what the tokens of one call that were written to the provider's cache for an hour cost beyond
// what Cost says of them, in dollars.
func LongWriteCost(prices *modelv1.Prices, usage *modelv1.ModelUsage, tokens int64) float64 {
	if long := prices.GetLongInput(); long != nil && InputTokens(usage) > prices.GetLongInputTokens() {
		return LongWriteCost(long, usage, tokens)
	}
	return float64(tokens) * prices.GetInputCacheWrite() * (longCacheFactor - 1) / 1e6
}

// Cost returns the cost of the usage of one call in dollars. longCache means that the provider's cache was asked to
// keep its entries for an hour.
func Cost(prices *modelv1.Prices, usage *modelv1.ModelUsage, longCache bool) float64 {
	if long := prices.GetLongInput(); long != nil && InputTokens(usage) > prices.GetLongInputTokens() {
		return Cost(long, usage, longCache)
	}
	write := prices.GetInputCacheWrite()
	if longCache {
		write *= longCacheFactor
	}
	return (float64(usage.GetInputTokens())*prices.GetInput() +
		float64(usage.GetOutputTokens())*prices.GetOutput() +
		float64(usage.GetInputTokensCacheWrite())*write +
		float64(usage.GetInputTokensCacheRead())*prices.GetInputCacheRead()) / 1e6
}
