package chat

import (
	"google.golang.org/protobuf/proto"

	"github.com/evalfleet/evalfleet/pkg/chat/internal/lax"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
)

// longCacheFactor is what writing to a cache that lives for an hour costs more than its price.
const longCacheFactor = 1.6

// ParseUsage reads usage; absent counts are 0, and unknown fields are dropped.
func ParseUsage(document []byte) (*modelv1.ModelUsage, error) {
	o, err := lax.Parse(document)
	if err != nil {
		return nil, err
	}
	usage := readUsage(o)
	return usage, o.Err()
}

// AddUsage returns the sum of two usages, either of which may be nil; of nothing but nil it is nil. A count that neither knows stays unknown.
func AddUsage(a, b *modelv1.ModelUsage) *modelv1.ModelUsage {
	switch {
	case a == nil && b == nil:
		return nil
	case a == nil:
		return proto.CloneOf(b)
	case b == nil:
		return proto.CloneOf(a)
	}
	return &modelv1.ModelUsage{
		InputTokens:           a.GetInputTokens() + b.GetInputTokens(),
		OutputTokens:          a.GetOutputTokens() + b.GetOutputTokens(),
		TotalTokens:           a.GetTotalTokens() + b.GetTotalTokens(),
		InputTokensCacheWrite: addKnown(a.InputTokensCacheWrite, b.InputTokensCacheWrite),
		InputTokensCacheRead:  addKnown(a.InputTokensCacheRead, b.InputTokensCacheRead),
		ReasoningTokens:       addKnown(a.ReasoningTokens, b.ReasoningTokens),
		TotalCost:             addKnown(a.TotalCost, b.TotalCost),
	}
}

func addKnown[T int64 | float64](a, b *T) *T {
	if a == nil && b == nil {
		return nil
	}
	return new(orZero(a) + orZero(b))
}

// InputTokens returns the tokens of the whole input, those of caches included.
func InputTokens(usage *modelv1.ModelUsage) int64 {
	return usage.GetInputTokens() + usage.GetInputTokensCacheRead() + usage.GetInputTokensCacheWrite()
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

// Cost returns what usage costs in dollars. longCache says that the provider's cache was asked to keep its entries for an hour.
func Cost(prices *modelv1.Prices, usage *modelv1.ModelUsage, longCache bool) float64 {
	write := prices.GetInputCacheWrite()
	if longCache {
		write *= longCacheFactor
	}
	return (float64(usage.GetInputTokens())*prices.GetInput() +
		float64(usage.GetOutputTokens())*prices.GetOutput() +
		float64(usage.GetInputTokensCacheWrite())*write +
		float64(usage.GetInputTokensCacheRead())*prices.GetInputCacheRead()) / 1e6
}
