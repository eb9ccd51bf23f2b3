package prepare

import (
	"slices"

	"github.com/evalfleet/evalfleet/pkg/chat"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
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

// withoutOrigins removes from a client's texts what says in which of a vendor's messages they came. Formats that have no
// place for it would add it to the text, for the model to see.
func withoutOrigins(messages []*modelv1.ChatMessage) []*modelv1.ChatMessage {
	hasOrigin := func(part *contentv1.Content) bool { return part.GetText() != nil && part.GetInternalJson() != "" }
	return each(messages, func(m *modelv1.ChatMessage) *modelv1.ChatMessage {
		if !slices.ContainsFunc(m.GetContent().GetList().GetParts(), hasOrigin) {
			return m
		}
		bare := changed(m)
		for _, part := range bare.GetContent().GetList().GetParts() {
			if hasOrigin(part) {
				part.InternalJson = ""
			}
		}
		return bare
	})
}

// withoutOpenReasoning removes from a client's messages the reasoning of other models that the Responses API has no place
// for: it would be an item that says nothing.
func withoutOpenReasoning(messages []*modelv1.ChatMessage) []*modelv1.ChatMessage {
	isOpen := func(part *contentv1.Content) bool {
		r := part.GetReasoning()
		return r != nil && !r.GetRedacted() && r.GetSignature() == "" && r.GetSummary() == ""
	}
	return each(messages, func(m *modelv1.ChatMessage) *modelv1.ChatMessage {
		if !slices.ContainsFunc(m.GetContent().GetList().GetParts(), isOpen) {
			return m
		}
		bare := changed(m)
		bare.Content = chat.ListContent(slices.DeleteFunc(bare.GetContent().GetList().GetParts(), isOpen)...)
		return bare
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
