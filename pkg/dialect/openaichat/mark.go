package openaichat

import (
	"github.com/evalfleet/evalfleet/pkg/chat"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
)

// markedSystem writes the content of a system message as texts with their marks; ends marks the last one.
func (e *encoder) markedSystem(m *modelv1.ChatMessage, ends bool) {
	parts := chat.Parts(m.GetContent())
	e.Body.BeginList()
	for i, part := range parts {
		e.Body.BeginObject()
		e.text(part, ends && i == len(parts)-1)
		e.Body.EndObject()
	}
	e.Body.EndList()
}

// text writes the members of a part that is a text; ends marks it for the cache.
func (e *encoder) text(part *contentv1.Content, ends bool) {
	e.Body.TextMember("type", "text")
	e.Body.TextMember("text", part.GetText().GetText())
	e.marks.Write(e.Body, part, ends)
}
