package openai

import (
	"github.com/evalfleet/evalfleet/pkg/chat"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
)

// Usage is usage whose cached tokens are counted in the input, as OpenAI's APIs do, with the cached tokens apart.
// Impossible usage is nil.
func Usage(u *modelv1.ModelUsage) *modelv1.ModelUsage {
	m := chat.KnownUsage(u)
	if m == nil {
		return nil
	}
	if m.GetTotalTokens() == 0 {
		m.TotalTokens = chat.SumTokens(m.GetInputTokens(), m.GetOutputTokens())
	}
	m.InputTokens = max(0, m.InputTokens-m.GetInputTokensCacheRead()-m.GetInputTokensCacheWrite())
	return m
}
