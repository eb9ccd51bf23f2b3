package anthropic

import (
	"fmt"
	"slices"

	"github.com/evalfleet/evalfleet/pkg/chat"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
)

// Arrange orders messages as the format requires. System messages at the beginning are instructions. If the model
// supports system messages within the conversation (inline), those that follow a user's turn and precede the model's or
// the end stay in place, neighbours merged. Older models get them as marked parts of the user's turns. All others move
// to the instructions, with a warning that their place has changed.
//
// Results of calls that are no longer in the conversation become texts of the user. If one mark of the prompt cache has
// no place in the format, all are removed: their author meant them together.
func Arrange(messages []*modelv1.ChatMessage, inline bool) (arranged []*modelv1.ChatMessage, warnings []string) {
	if losesMark(messages) {
		messages = withoutMarks(messages)
	}
	messages = withoutOrphans(messages)
	start := slices.IndexFunc(messages, func(m *modelv1.ChatMessage) bool { return m.GetRole() != modelv1.Role_ROLE_SYSTEM })
	if start < 0 {
		start = len(messages)
	}
	var hoisted, rest []*modelv1.ChatMessage
	for at := start; at < len(messages); {
		if m := messages[at]; m.GetRole() != modelv1.Role_ROLE_SYSTEM {
			rest = append(rest, m)
			at++
			continue
		}
		end := at
		for end < len(messages) && messages[end].GetRole() == modelv1.Role_ROLE_SYSTEM {
			end++
		}
		before := roleAt(messages, at-1)
		if at > start && endsInServersTool(messages[at-1]) {
			before = modelv1.Role_ROLE_USER // the server answered itself
		}
		placed, stay := place(messages[at:end], before, roleAt(messages, end), inline)
		if stay {
			rest = append(rest, placed...)
		} else {
			for _, m := range placed {
				hoisted = append(hoisted, chat.System(chat.Text(m)))
			}
		}
		at = end
	}
	if len(hoisted) > 0 {
		warnings = append(warnings, fmt.Sprintf("system messages within the conversation were moved before it, since they cannot stand where they are: %d", len(hoisted)))
	}
	return slices.Concat(messages[:start], hoisted, rest), warnings
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
func place(run []*modelv1.ChatMessage, before, after modelv1.Role, inline bool) (placed []*modelv1.ChatMessage, stay bool) {
	if inline {
		follows := before == modelv1.Role_ROLE_USER || before == modelv1.Role_ROLE_TOOL
		precedes := after == modelv1.Role_ROLE_ASSISTANT || after == modelv1.Role_ROLE_UNSPECIFIED
		if len(run) == 1 {
			return run, follows && precedes
		}
		text := ""
		for i, m := range run {
			if i > 0 {
				text += "\n\n"
			}
			text += chat.Text(m)
		}
		return []*modelv1.ChatMessage{chat.System(text)}, follows && precedes
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

// withoutOrphans makes texts of the user of results whose calls are not in the conversation.
func withoutOrphans(messages []*modelv1.ChatMessage) []*modelv1.ChatMessage {
	called := map[string]bool{}
	kept := make([]*modelv1.ChatMessage, 0, len(messages))
	for _, m := range messages {
		for _, call := range m.GetToolCalls() {
			called[call.GetId()] = true
		}
		if m.GetRole() == modelv1.Role_ROLE_TOOL && !called[firstID(m)] {
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
