package claude

import (
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
)

// Unthought reports whether the model is to continue a turn, after results of its calls or within a message, in which it
// has not thought. The server refuses that while the model thinks within a budget:
// https://platform.claude.com/docs/en/build-with-claude/extended-thinking. seals means that past thinking is sent
// with its signature; without one it does not count.
func Unthought(messages []*modelv1.ChatMessage, seals bool) bool {
	end := len(messages)
	for end > 0 && !ofTurn(messages[end-1]) {
		end--
	}
	if end == 0 || end < len(messages) && messages[end-1].GetRole() != modelv1.Role_ROLE_TOOL {
		return false
	}
	said := false
	for ; end > 0 && ofTurn(messages[end-1]); end-- {
		m := messages[end-1]
		said = said || m.GetRole() == modelv1.Role_ROLE_ASSISTANT
		if parts := m.GetContent().GetList().GetParts(); seals && len(parts) > 0 {
			if first := parts[0].GetReasoning(); first.GetRedacted() || first.GetSignature() != "" {
				return false
			}
		}
	}
	return said
}

// ofTurn reports whether a message is of the model's turn: its own, or a result of its calls.
func ofTurn(m *modelv1.ChatMessage) bool {
	return m.GetRole() == modelv1.Role_ROLE_ASSISTANT || m.GetRole() == modelv1.Role_ROLE_TOOL
}
