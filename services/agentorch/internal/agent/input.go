package agent

import (
	"slices"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
)

// Input folds an event into the input of an agent's model, and reports whether the input now differs from the
// conversation. Sent is the input before the event, conversation the messages after it, and diverged the report for the
// event before. No list is modified.
//
// A compaction replaces the input. Messages that are added to the conversation later are appended to it, and edits and
// removals apply to both. A removal may leave a call or a result alone whose counterpart the compaction has changed, and
// so made another message: it goes too, since providers refuse it. A conversation that is replaced as a whole is the
// input again.
func Input(sent, conversation []*modelv1.ChatMessage, diverged bool, e *agentv1.Event) ([]*modelv1.ChatMessage, bool) {
	switch k := e.GetKind().(type) {
	case *agentv1.Event_Compacted:
		return ordered(sent, k.Compacted.GetOrder(), k.Compacted.GetContent().GetMessages()), true
	case *agentv1.Event_InputAdded:
		return append(slices.Clip(sent), k.InputAdded.GetContent()), true
	case *agentv1.Event_MessageAdded:
		added := func(m *modelv1.ChatMessage) bool { return m.GetId() == k.MessageAdded.GetContent().GetId() }
		if diverged && !slices.ContainsFunc(sent, added) {
			return Added(sent, k.MessageAdded), true
		}
	case *agentv1.Event_HistoryChanged:
		if diverged && !k.HistoryChanged.GetReplaceAll() {
			changed := Changed(sent, k.HistoryChanged)
			if len(changed) < len(sent) {
				changed = paired(changed)
			}
			return changed, true
		}
		return conversation, false
	}
	if diverged {
		return sent, true
	}
	return conversation, false
}

// paired drops each answer of whose calls one has no result, with the results of the others, and each result that
// follows no answer.
func paired(messages []*modelv1.ChatMessage) (kept []*modelv1.ChatMessage) {
	for len(messages) > 0 {
		end := 1
		for end < len(messages) && messages[end].GetRole() == modelv1.Role_ROLE_TOOL {
			end++
		}
		turn := messages[:end]
		messages = messages[end:]
		switch caller := turn[0]; {
		case caller.GetRole() == modelv1.Role_ROLE_TOOL:
		case len(caller.GetToolCalls()) == 0:
			kept = append(kept, caller)
		case !slices.ContainsFunc(caller.GetToolCalls(), func(c *toolv1.ToolCall) bool { return !hasResult(turn[1:], c.GetId()) }):
			kept = append(kept, turn...)
		}
	}
	return kept
}

func hasResult(results []*modelv1.ChatMessage, call string) bool {
	return slices.ContainsFunc(results, func(m *modelv1.ChatMessage) bool { return slices.Contains(m.GetToolCallIds(), call) })
}

// Conversation is the messages of an agent and the input of its model, as a fold of events. The zero value is empty. It
// is not safe for concurrent use.
type Conversation struct {
	messages []*modelv1.ChatMessage
	sent     []*modelv1.ChatMessage // the input, if diverged
	diverged bool
}

// NewConversation returns a conversation that begins with these messages. The list is not modified.
func NewConversation(messages []*modelv1.ChatMessage) Conversation {
	return Conversation{messages: slices.Clip(messages)}
}

// Messages returns the conversation. The caller must not modify the list.
func (c *Conversation) Messages() []*modelv1.ChatMessage { return c.messages }

// Input returns what the model is sent: the conversation or, after a compaction, the result of that and the messages
// since then. The caller must not modify the list.
func (c *Conversation) Input() []*modelv1.ChatMessage {
	if c.diverged {
		return c.sent
	}
	return c.messages
}

// Apply folds an event of the agent. Events that change neither list are ignored.
func (c *Conversation) Apply(e *agentv1.Event) {
	before := c.Input()
	switch k := e.GetKind().(type) {
	case *agentv1.Event_MessageAdded:
		c.messages = Added(c.messages, k.MessageAdded)
	case *agentv1.Event_HistoryChanged:
		c.messages = Changed(c.messages, k.HistoryChanged)
	}
	c.sent, c.diverged = Input(before, c.messages, c.diverged, e)
}

// ResetInput makes the conversation the input again, as when another agent takes over.
func (c *Conversation) ResetInput() { c.sent, c.diverged = nil, false }
