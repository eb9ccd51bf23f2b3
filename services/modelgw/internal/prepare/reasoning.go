package prepare

import (
	"slices"

	"github.com/evalfleet/evalfleet/pkg/chat"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

// Modes of past reasoning.
const (
	ReasoningAll  = modelv1.ReasoningHistory_REASONING_HISTORY_ALL
	ReasoningLast = modelv1.ReasoningHistory_REASONING_HISTORY_LAST
	ReasoningNone = modelv1.ReasoningHistory_REASONING_HISTORY_NONE
)

// reasoningMode is the mode that the provider forces, else the configured one, else the provider's preferred one.
func reasoningMode(config *modelv1.GenerateConfig, c provider.Capabilities) modelv1.ReasoningHistory {
	for _, mode := range []modelv1.ReasoningHistory{c.ForceReasoning, config.GetReasoningHistory(), c.AutoReasoning} {
		if mode != 0 && mode != modelv1.ReasoningHistory_REASONING_HISTORY_AUTO {
			return mode
		}
	}
	return ReasoningAll
}

// Reasoning leaves past reasoning in all messages, in none, or in the last message of the model that has any.
func Reasoning(messages []*modelv1.ChatMessage, mode modelv1.ReasoningHistory) []*modelv1.ChatMessage {
	kept := -1
	switch mode {
	case ReasoningNone:
	case ReasoningLast:
		for i, m := range messages {
			if hasReasoning(m) {
				kept = i
			}
		}
	default:
		return messages
	}
	filtered := slices.Clone(messages)
	for i, m := range messages {
		if i != kept && hasReasoning(m) {
			filtered[i] = withoutReasoning(m)
		}
	}
	return filtered
}

func isReasoning(part *contentv1.Content) bool { return part.GetReasoning() != nil }

func hasReasoning(m *modelv1.ChatMessage) bool {
	return m.GetRole() == modelv1.Role_ROLE_ASSISTANT && slices.ContainsFunc(m.GetContent().GetList().GetParts(), isReasoning)
}

func withoutReasoning(m *modelv1.ChatMessage) *modelv1.ChatMessage {
	without := changed(m)
	without.Content = chat.ListContent(slices.DeleteFunc(without.GetContent().GetList().GetParts(), isReasoning)...)
	return without
}
