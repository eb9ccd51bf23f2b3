package run

import (
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/evalfleet/evalfleet/pkg/chat"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
)

func (s *State) messageAdded(a *agentv1.MessageAdded) {
	m := a.GetContent()
	s.messages = Added(s.messages, a)
	if answered := chat.FirstMessage(s.answer); answered != nil && m.GetId() == answered.GetId() {
		s.output = s.answer // the conversation took the answer
	}
	s.resultAdded(m)
	s.posted(m)
}

// posted takes an operator's messages off the list once they are in the conversation.
func (s *State) posted(m *modelv1.ChatMessage) {
	if m.GetSource() == modelv1.MessageSource_MESSAGE_SOURCE_OPERATOR {
		s.Posted = nil
	}
}

func (s *State) historyChanged(h *agentv1.HistoryChanged) {
	s.messages = Changed(s.messages, h)
	for _, m := range h.GetContent().GetMessages() {
		if first := chat.FirstMessage(s.output); first != nil && first.GetId() == m.GetId() && first != m {
			s.output = proto.CloneOf(s.output)
			s.output.Choices[0].Message = m
		}
	}
}

func (s *State) outputSet(o *agentv1.OutputSet) {
	switch {
	case o.GetContent() != nil:
		s.output = o.GetContent()
	case o.Completion != nil:
		changed := proto.CloneOf(s.output)
		if changed == nil {
			changed = &modelv1.ModelOutput{}
		}
		changed.Completion = o.GetCompletion()
		s.output = changed
	}
}

// Added returns the conversation with one more message. The list given may be grown in place, but what it holds stays.
func Added(messages []*modelv1.ChatMessage, a *agentv1.MessageAdded) []*modelv1.ChatMessage {
	if a.Index == nil || int(a.GetIndex()) >= len(messages) {
		return append(messages, a.GetContent())
	}
	return slices.Insert(slices.Clone(messages), max(0, int(a.GetIndex())), a.GetContent())
}

// Changed returns the conversation after a change by ids, as a new list.
func Changed(messages []*modelv1.ChatMessage, h *agentv1.HistoryChanged) []*modelv1.ChatMessage {
	if h.GetReplaceAll() {
		return slices.Clone(h.GetContent().GetMessages())
	}
	replaced := map[string]*modelv1.ChatMessage{}
	for _, m := range h.GetContent().GetMessages() {
		replaced[m.GetId()] = m
	}
	var changed []*modelv1.ChatMessage
	for _, m := range messages {
		if slices.Contains(h.GetRemovedIds(), m.GetId()) {
			continue
		}
		if by, ok := replaced[m.GetId()]; ok {
			m = by
		}
		changed = append(changed, m)
	}
	return changed
}
