package prepare

import (
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

// withRules has a client's merged messages follow the rules of the model's API: merging may make blank texts, and one turn
// of several messages with calls.
func withRules(messages []*modelv1.ChatMessage, c provider.Capabilities) []*modelv1.ChatMessage {
	if c.UserFirst {
		messages = withUserFirst(messages)
	}
	if c.RefusesBlank {
		messages = withoutFinalSpace(withoutBlanks(messages))
	}
	if c.UniqueCalls {
		messages = withUniqueCalls(messages)
	}
	if c.CallIDLen > 0 {
		messages = withCallIDs(messages, c.CallIDLen)
	}
	return messages
}

// withResultsAtCalls moves the results of a client's calls to the message with the calls, where a message of another
// party is between them. The Responses API takes them later too.
func withResultsAtCalls(messages []*modelv1.ChatMessage) []*modelv1.ChatMessage {
	isResult := func(m *modelv1.ChatMessage) bool { return m.GetRole() == modelv1.Role_ROLE_TOOL }
	late := false
	for i, m := range messages {
		late = late || isResult(m) && i > 0 && !isResult(messages[i-1]) && messages[i-1].GetRole() != modelv1.Role_ROLE_ASSISTANT
	}
	if !late {
		return messages
	}
	calls, results := map[string]int{}, map[int][]*modelv1.ChatMessage{}
	var rest []int
	for i, m := range messages {
		for _, call := range m.GetToolCalls() {
			calls[call.GetId()] = i
		}
		if at, called := calls[chat.CallID(m)]; isResult(m) && called {
			results[at] = append(results[at], m)
		} else {
			rest = append(rest, i)
		}
	}
	moved := make([]*modelv1.ChatMessage, 0, len(messages))
	for _, i := range rest {
		moved = append(append(moved, messages[i]), results[i]...)
	}
	return moved
}

// withUserFirst puts a message of the user before a conversation that begins with the model's.
func withUserFirst(messages []*modelv1.ChatMessage) []*modelv1.ChatMessage {
	first := slices.IndexFunc(messages, func(m *modelv1.ChatMessage) bool { return m.GetRole() != modelv1.Role_ROLE_SYSTEM })
	if first < 0 || messages[first].GetRole() != modelv1.Role_ROLE_ASSISTANT {
		return messages
	}
	return slices.Insert(slices.Clone(messages), first, chat.User(dialect.NoContent))
}

// withoutBlanks removes from a client's messages the texts without a visible character. A message of which nothing is
// left has a text that says so; one with calls needs none, and neither does one of the system.
func withoutBlanks(messages []*modelv1.ChatMessage) []*modelv1.ChatMessage {
	isBlank := func(part *contentv1.Content) bool {
		return part.GetText() != nil && strings.TrimSpace(part.GetText().GetText()) == ""
	}
	return each(messages, func(m *modelv1.ChatMessage) *modelv1.ChatMessage {
		parts := chat.Parts(m.GetContent())
		rest := ""
		if len(m.GetToolCalls()) == 0 && m.GetRole() != modelv1.Role_ROLE_SYSTEM {
			rest = dialect.NoContent
		}
		isRest := m.GetContent().GetList() == nil && m.GetContent().GetText() == rest
		if isRest || !slices.ContainsFunc(parts, isBlank) {
			return m
		}
		said := changed(m)
		if left := slices.DeleteFunc(slices.Clone(parts), isBlank); len(left) > 0 {
			said.Content = chat.ListContent(left...)
		} else {
			said.Content = chat.TextContent(rest)
		}
		return said
	})
}

// withoutFinalSpace removes the white space at the end of a conversation whose last message is the model's.
func withoutFinalSpace(messages []*modelv1.ChatMessage) []*modelv1.ChatMessage {
	if len(messages) == 0 {
		return messages
	}
	last := messages[len(messages)-1]
	parts := chat.Parts(last.GetContent())
	if last.GetRole() != modelv1.Role_ROLE_ASSISTANT || len(parts) == 0 {
		return messages
	}
	said := parts[len(parts)-1].GetText().GetText()
	trimmed := strings.TrimRightFunc(said, unicode.IsSpace)
	if trimmed == said {
		return messages
	}
	last = changed(last)
	if list := last.GetContent().GetList(); list != nil {
		list.GetParts()[len(parts)-1].GetText().Text = trimmed
	} else {
		last.Content = chat.TextContent(trimmed)
	}
	return append(slices.Clone(messages[:len(messages)-1]), last)
}

// withUniqueCalls gives a client's calls whose id an earlier call has an id of their own, and their results the same. A
// result belongs to the last turn with its id; of calls of that turn that shared the id, the n-th result to the n-th.
func withUniqueCalls(messages []*modelv1.ChatMessage) []*modelv1.ChatMessage {
	if !hasCalls(messages) {
		return messages
	}
	used, repeats := map[string]bool{}, map[string]int{}
	open := map[string][]string{} // The ids now of the last turn's calls, by the id that the client gave them.
	return each(messages, func(m *modelv1.ChatMessage) *modelv1.ChatMessage {
		after := m
		own := func() *modelv1.ChatMessage {
			if after == m {
				after = changed(m)
			}
			return after
		}
		begun := map[string]bool{}
		for i, call := range m.GetToolCalls() {
			given := call.GetId()
			id := given
			for used[id] {
				repeats[given]++
				id = given + "_" + strconv.Itoa(repeats[given]+1)
			}
			used[id] = true
			if !begun[given] {
				begun[given], open[given] = true, nil
			}
			open[given] = append(open[given], id)
			if id != given {
				own().ToolCalls[i].Id = id
			}
		}
		for i, given := range m.GetToolCallIds() {
			ids := open[given]
			if len(ids) == 0 {
				continue
			}
			if ids[0] != given {
				own().ToolCallIds[i] = ids[0]
			}
			if len(ids) > 1 {
				open[given] = ids[1:]
			}
		}
		return after
	})
}

// withCallIDs replaces those ids of a client's calls and results that are not so many letters and digits.
func withCallIDs(messages []*modelv1.ChatMessage, length int) []*modelv1.ChatMessage {
	id := func(given string) string { return dialect.FixedCallID(given, length) }
	differs := func(given string) bool { return id(given) != given }
	return each(messages, func(m *modelv1.ChatMessage) *modelv1.ChatMessage {
		ofCall := func(call *toolv1.ToolCall) bool { return differs(call.GetId()) }
		if !slices.ContainsFunc(m.GetToolCalls(), ofCall) && !slices.ContainsFunc(m.GetToolCallIds(), differs) {
			return m
		}
		named := changed(m)
		for _, call := range named.GetToolCalls() {
			call.Id = id(call.GetId())
		}
		for i, given := range named.GetToolCallIds() {
			named.ToolCallIds[i] = id(given)
		}
		return named
	})
}

// noTool is the tool on offer where an API demands one and a client offers none.
var noTool = &toolv1.ToolInfo{
	Name: "no_tool", Description: "There is no tool. Never call this.", ParametersJson: `{"type":"object","properties":{}}`,
}

// hasCalls reports whether a conversation has calls of tools, or results of them.
func hasCalls(messages []*modelv1.ChatMessage) bool {
	return slices.ContainsFunc(messages, func(m *modelv1.ChatMessage) bool {
		return len(m.GetToolCalls()) > 0 || m.GetRole() == modelv1.Role_ROLE_TOOL
	})
}
