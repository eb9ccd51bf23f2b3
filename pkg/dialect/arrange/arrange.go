// Package arrange puts messages of a conversation where APIs accept them that have the system's instructions apart from
// the turns of the user and the model: system messages within the conversation, and results without their calls.
package arrange

import (
	"slices"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/chat"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
)

// IsSystem reports whether a message is an instruction: one of the system, or of a role that is not known.
func IsSystem(m *modelv1.ChatMessage) bool {
	return m.GetRole() != modelv1.Role_ROLE_USER && m.GetRole() != modelv1.Role_ROLE_ASSISTANT && m.GetRole() != modelv1.Role_ROLE_TOOL
}

// WithoutOrphans returns the messages with results whose calls are not in the conversation as texts of the user.
func WithoutOrphans(messages []*modelv1.ChatMessage) []*modelv1.ChatMessage {
	called := map[string]bool{}
	kept := make([]*modelv1.ChatMessage, 0, len(messages))
	for _, m := range messages {
		for _, call := range m.GetToolCalls() {
			called[call.GetId()] = true
		}
		if m.GetRole() == modelv1.Role_ROLE_TOOL && !called[chat.CallID(m)] {
			m = orphan(m)
		}
		kept = append(kept, m)
	}
	return kept
}

// orphan is a tool's result as a text of the user.
func orphan(m *modelv1.ChatMessage) *modelv1.ChatMessage {
	head := "[Tool result for " + m.GetFunction()
	if failure := m.GetError(); failure != nil {
		head += " (error: " + failure.GetMessage() + ")"
	}
	return chat.User(head + "]\n" + chat.Text(m))
}

// System places the system messages within a conversation. Those at its beginning are instructions. If the model
// supports system messages within the conversation (inline), those that follow a user's turn and precede the model's or
// the end stay in place, neighbours merged. Other models get them as marked parts of the user's turns. All others move
// to the instructions; moved is how many.
func System(messages []*modelv1.ChatMessage, inline bool) (placed []*modelv1.ChatMessage, moved int) {
	isOther := func(m *modelv1.ChatMessage) bool { return m.GetRole() != modelv1.Role_ROLE_SYSTEM }
	start := slices.IndexFunc(messages, isOther)
	if start < 0 {
		start = len(messages)
	}
	var hoisted, rest []*modelv1.ChatMessage
	for at := start; at < len(messages); {
		if isOther(messages[at]) {
			rest = append(rest, messages[at])
			at++
			continue
		}
		end := at
		for end < len(messages) && !isOther(messages[end]) {
			end++
		}
		before := roleAt(messages, at-1)
		if at > start && endsInServersTool(messages[at-1]) {
			before = modelv1.Role_ROLE_USER // the server answered itself
		}
		if run, stays := place(messages[at:end], before, roleAt(messages, end), inline); stays {
			rest = append(rest, run...)
		} else {
			for _, m := range run {
				hoisted = append(hoisted, chat.System(chat.Text(m)))
			}
		}
		at = end
	}
	return slices.Concat(messages[:start], hoisted, rest), len(hoisted)
}

func roleAt(messages []*modelv1.ChatMessage, at int) modelv1.Role {
	if at < 0 || at >= len(messages) {
		return modelv1.Role_ROLE_UNSPECIFIED
	}
	return messages[at].GetRole()
}

// endsInServersTool reports whether a message ends in the result of a server's tool.
func endsInServersTool(m *modelv1.ChatMessage) bool {
	parts := m.GetContent().GetList().GetParts()
	return len(m.GetToolCalls()) == 0 && len(parts) > 0 && parts[len(parts)-1].GetToolUse() != nil
}

// place returns the treatment of consecutive system messages between messages of these roles, and whether they stay in
// place.
func place(run []*modelv1.ChatMessage, before, after modelv1.Role, inline bool) (placed []*modelv1.ChatMessage, stays bool) {
	if inline {
		follows := before == modelv1.Role_ROLE_USER || before == modelv1.Role_ROLE_TOOL
		precedes := after == modelv1.Role_ROLE_ASSISTANT || after == modelv1.Role_ROLE_UNSPECIFIED
		if len(run) == 1 {
			return run, follows && precedes
		}
		texts := make([]string, len(run))
		for i, m := range run {
			texts[i] = chat.Text(m)
		}
		return []*modelv1.ChatMessage{chat.System(strings.Join(texts, "\n\n"))}, follows && precedes
	}
	// Beside a tool's result a text would end the model's turn, and with it the thinking that belongs to the call.
	if before == modelv1.Role_ROLE_TOOL || after == modelv1.Role_ROLE_TOOL {
		return run, false
	}
	for _, m := range run {
		placed = append(placed, chat.User("<system-reminder>\n"+chat.Text(m)+"\n</system-reminder>"))
	}
	return placed, true
}
