package history

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	"github.com/evalfleet/evalfleet/pkg/chat"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/json/orderedjson"
)

// Filter changes a view of a conversation. It does not change the given messages.
type Filter func([]*modelv1.ChatMessage) []*modelv1.ChatMessage

// Names of the filters.
const (
	NameContentOnly = "content_only"
	NameRemoveTools = "remove_tools"
	NameLastMessage = "last_message"
)

// Filters returns the names of the filters.
func Filters() []string { return []string{NameContentOnly, NameRemoveTools, NameLastMessage} }

// FilterByName returns the filter of a name.
func FilterByName(name string) (Filter, error) {
	switch name {
	case NameContentOnly:
		return ContentOnly, nil
	case NameRemoveTools:
		return RemoveTools, nil
	case NameLastMessage:
		return LastMessage, nil
	}
	return nil, fmt.Errorf("unknown filter %q; known are %s", name, strings.Join(Filters(), ", "))
}

// LastMessage keeps the last message only.
func LastMessage(messages []*modelv1.ChatMessage) []*modelv1.ChatMessage {
	return slices.Clone(messages[max(0, len(messages)-1):])
}

// RemoveTools drops tool results and tool calls.
func RemoveTools(messages []*modelv1.ChatMessage) []*modelv1.ChatMessage {
	var kept []*modelv1.ChatMessage
	for _, m := range messages {
		if m.GetRole() == modelv1.Role_ROLE_TOOL {
			continue
		}
		if len(m.GetToolCalls()) > 0 {
			m = proto.CloneOf(m)
			m.ToolCalls, m.ToolCallsRemoved = nil, false
		}
		kept = append(kept, m)
	}
	return kept
}

// ContentOnly turns a conversation into plain talk, which any model can take: no system messages, no reasoning, tool
// results as user messages, and tool calls and tools of the provider's own as text.
func ContentOnly(messages []*modelv1.ChatMessage) []*modelv1.ChatMessage {
	var kept []*modelv1.ChatMessage
	for _, m := range messages {
		switch m.GetRole() { //nolint:exhaustive // the others stay as they are
		case modelv1.Role_ROLE_SYSTEM:
			continue
		case modelv1.Role_ROLE_TOOL:
			m = &modelv1.ChatMessage{Id: m.GetId(), Role: modelv1.Role_ROLE_USER, Content: m.GetContent()}
		case modelv1.Role_ROLE_ASSISTANT:
			m = plain(m)
		}
		kept = append(kept, m)
	}
	return kept
}

// plain is an assistant message as text alone.
func plain(m *modelv1.ChatMessage) *modelv1.ChatMessage {
	var parts []*contentv1.Content
	for _, part := range chat.Parts(m.GetContent()) {
		switch {
		case part.GetReasoning() != nil:
			continue
		case part.GetToolUse() != nil:
			use := part.GetToolUse()
			part = chat.TextPart(use.GetName() + " " + use.GetArguments() + "\n\n" + use.GetResult())
		case part.GetInternalJson() != "":
			part = proto.CloneOf(part)
			part.InternalJson = ""
		}
		parts = append(parts, part)
	}
	if len(m.GetToolCalls()) > 0 {
		lines := make([]string, len(m.GetToolCalls()))
		for i, call := range m.GetToolCalls() {
			lines[i] = Render(call)
		}
		parts = append(parts, chat.TextPart(strings.Join(lines, "\n")))
	}
	changed := proto.CloneOf(m)
	changed.Content, changed.ToolCalls, changed.ToolCallsRemoved, changed.InternalJson = chat.ListContent(parts...), nil, false, ""
	return changed
}

// lineWidth is the width, in characters, at which a rendered call is broken into lines.
const lineWidth = 80

// Render writes a tool call as the call of a function: `name(text='…', n=1)`, with one argument per line if it would be
// too long.
func Render(call *toolv1.ToolCall) string {
	members, err := orderedjson.DecodeObject([]byte(call.GetArgumentsJson()))
	if err != nil || members.Len() == 0 {
		return call.GetFunction() + "()"
	}
	var arguments []string
	for name, value := range members.All() {
		arguments = append(arguments, name+"="+literal(value))
	}
	if line := call.GetFunction() + "(" + strings.Join(arguments, ", ") + ")"; utf8.RuneCountInString(line) < lineWidth {
		return line
	}
	return call.GetFunction() + "(\n" + indented(strings.Join(arguments, ",\n")) + "\n)"
}

// literal writes a JSON value; a text is as it is, in single quotes.
func literal(value any) string {
	if text, ok := value.(string); ok {
		return "'" + text + "'"
	}
	return string(orderedjson.Append(nil, value))
}

// indented moves the lines of a text to the right, except those of blanks alone.
func indented(text string) string {
	lines := strings.SplitAfter(text, "\n")
	for i, line := range lines {
		if strings.TrimSpace(line) != "" {
			lines[i] = "    " + line
		}
	}
	return strings.Join(lines, "")
}
