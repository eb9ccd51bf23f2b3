package openaichat

import (
	"slices"

	"github.com/evalfleet/evalfleet/pkg/chat"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
)

// explicitMode is the value of the members that mark a part for the cache, and of the one that declares that a request
// has marks.
const explicitMode = `{"mode":"explicit"}`

func isMarked(part *contentv1.Content) bool { return part.GetText().GetCacheBreakpoint() }

func hasMarks(m *modelv1.ChatMessage) bool {
	return slices.ContainsFunc(m.GetContent().GetList().GetParts(), isMarked)
}

// canMark reports whether messages have marks, and all of them where the format has a place for them.
func canMark(messages []*modelv1.ChatMessage) bool {
	some := false
	for _, m := range messages {
		if !hasMarks(m) {
			continue
		}
		if m.GetRole() == modelv1.Role_ROLE_ASSISTANT || m.GetRole() == modelv1.Role_ROLE_TOOL {
			return false
		}
		some = true
	}
	return some
}

// endsSystem reports whether the message at i is the last of the leading system messages.
func (e *encoder) endsSystem(i int) bool {
	isSystem := func(m *modelv1.ChatMessage) bool { return m.GetRole() == modelv1.Role_ROLE_SYSTEM }
	return !slices.ContainsFunc(e.Messages[:i+1], func(m *modelv1.ChatMessage) bool { return !isSystem(m) }) &&
		(i+1 == len(e.Messages) || !isSystem(e.Messages[i+1]))
}

// markedSystem writes the content of a system message as texts with their marks; ends marks the last one.
func (e *encoder) markedSystem(m *modelv1.ChatMessage, ends bool) {
	parts := chat.Parts(m.GetContent())
	e.w.BeginList()
	for i, part := range parts {
		e.w.BeginObject()
		e.text(part.GetText(), isMarked(part) || ends && i == len(parts)-1)
		e.w.EndObject()
	}
	e.w.EndList()
}

// text writes the members of a part that is a text.
func (e *encoder) text(text *contentv1.Text, marked bool) {
	e.w.TextMember("type", "text")
	e.w.TextMember("text", text.GetText())
	if e.marks && marked {
		e.w.RawMember("prompt_cache_breakpoint", explicitMode)
	}
}
