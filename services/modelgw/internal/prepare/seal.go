package prepare

import (
	"slices"

	"github.com/evalfleet/evalfleet/pkg/chat"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/seal"
)

// seals replaces reasoning that the reader cannot unseal by its readable text.
func seals(messages []*modelv1.ChatMessage, reader string) []*modelv1.ChatMessage {
	return each(messages, func(m *modelv1.ChatMessage) *modelv1.ChatMessage {
		parts, differ := seal.Parts(reader, m)
		if m.GetRole() != modelv1.Role_ROLE_ASSISTANT || !differ {
			return m
		}
		opened := changed(m)
		opened.Content = chat.ListContent(parts...)
		return opened
	})
}

// signed has the calls of models' messages signed, as an API demands it.
func signed(messages []*modelv1.ChatMessage, sign func(*modelv1.ChatMessage) *modelv1.ChatMessage) []*modelv1.ChatMessage {
	return each(messages, func(m *modelv1.ChatMessage) *modelv1.ChatMessage {
		after := m
		if m.GetRole() == modelv1.Role_ROLE_ASSISTANT {
			after = sign(m)
		}
		if after != m {
			after.Id = chat.NewID()
		}
		return after
	})
}

// each returns messages with what change makes of them: the same list if that is nothing.
func each(messages []*modelv1.ChatMessage, change func(*modelv1.ChatMessage) *modelv1.ChatMessage) []*modelv1.ChatMessage {
	own := false
	all := messages
	for i, m := range messages {
		after := change(m)
		if after == m {
			continue
		}
		if !own {
			all, own = slices.Clone(messages), true
		}
		all[i] = after
	}
	return all
}
