package agent

import (
	"slices"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
)

// Added returns the conversation with one more message. The given slice may be grown in place, but its elements stay.
func Added(messages []*modelv1.ChatMessage, a *agentv1.MessageAdded) []*modelv1.ChatMessage {
	if a.Index == nil || int(a.GetIndex()) >= len(messages) {
		return append(messages, a.GetContent())
	}
	return slices.Insert(slices.Clone(messages), max(0, int(a.GetIndex())), a.GetContent())
}

// Changed returns the conversation after a change, as a new list.
func Changed(messages []*modelv1.ChatMessage, h *agentv1.HistoryChanged) []*modelv1.ChatMessage {
	if h.GetReplaceAll() {
		return ordered(messages, h.GetOrder(), h.GetContent().GetMessages())
	}
	replaced := map[string]*modelv1.ChatMessage{}
	for _, m := range h.GetContent().GetMessages() {
		replaced[m.GetId()] = m
	}
	removed := map[string]bool{}
	for _, id := range h.GetRemovedIds() {
		removed[id] = true
	}
	var changed []*modelv1.ChatMessage
	for _, m := range messages {
		if removed[m.GetId()] {
			continue
		}
		if by, ok := replaced[m.GetId()]; ok {
			m = by
		}
		changed = append(changed, m)
	}
	return changed
}

// ordered returns messages that take the place of others: those that order names, and fresh ones between them.
func ordered(before []*modelv1.ChatMessage, order []string, fresh []*modelv1.ChatMessage) []*modelv1.ChatMessage {
	known := map[string]*modelv1.ChatMessage{}
	for _, m := range slices.Backward(before) { // Of two with one id, the first counts.
		known[m.GetId()] = m
	}
	var after []*modelv1.ChatMessage
	for _, id := range order {
		if id == "" {
			if len(fresh) > 0 { // Without contents, there is none.
				after, fresh = append(after, fresh[0]), fresh[1:]
			}
			continue
		}
		if m, there := known[id]; there {
			after = append(after, m)
		}
	}
	return after
}
