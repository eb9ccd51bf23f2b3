package agent

import (
	"slices"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
)

// Input returns what an agent's model is sent after an event, and whether that is no longer the conversation. Sent is
// what it was sent before, conversation the messages after the event; own is set once these two differ.
//
// A compaction takes the place of the conversation. Later messages follow it, and a message that is edited or removed is
// so there too. A conversation that is replaced as a whole is sent whole.
func Input(sent, conversation []*modelv1.ChatMessage, own bool, e *agentv1.Event) ([]*modelv1.ChatMessage, bool) {
	switch k := e.GetKind().(type) {
	case *agentv1.Event_Compacted:
		return ordered(sent, k.Compacted.GetOrder(), k.Compacted.GetContent().GetMessages()), true
	case *agentv1.Event_InputAdded:
		return append(slices.Clip(sent), k.InputAdded.GetContent()), true
	case *agentv1.Event_MessageAdded:
		added := func(m *modelv1.ChatMessage) bool { return m.GetId() == k.MessageAdded.GetContent().GetId() }
		if own && !slices.ContainsFunc(sent, added) {
			return Added(sent, k.MessageAdded), true
		}
	case *agentv1.Event_HistoryChanged:
		if own && !k.HistoryChanged.GetReplaceAll() {
			return Changed(sent, k.HistoryChanged), true
		}
		return conversation, false
	}
	if own {
		return sent, true
	}
	return conversation, false
}
