package openaichat

import (
	"github.com/evalfleet/evalfleet/pkg/chat"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
)

// markedSystem writes the content of a system message as texts with their marks; ends marks the last one.
func (e *encoder) markedSystem(m *modelv1.ChatMessage, ends bool) {
	parts := chat.Parts(m.GetContent())
	for i, part := range jsonwrite.Objects(e.Body, parts) {
		e.text(part, ends && i == len(parts)-1)
	}
}

// text writes the members of a part that is a text; ends marks it for the cache.
func (e *encoder) text(part *contentv1.Content, ends bool) {
	e.Body.TextMember("type", "text")
	e.Body.TextMember("text", part.GetText().GetText())
	e.marks.Write(e.Body, part, ends)
}

// ephemeral are the places of marks in messages: the message of the system whose end is marked, and a part of another
// message; -1 is none.
type ephemeral struct{ system, message, part int }

var noEphemeral = ephemeral{-1, -1, -1}

// ephemeralOf finds the places. The part is the last but one of the last message, so that the mark is before what the
// next request changes, or else the last part of the message before. A content that is a plain text has no place.
func ephemeralOf(messages []*modelv1.ChatMessage) ephemeral {
	at := noEphemeral
	for i, m := range messages {
		if m.GetRole() == modelv1.Role_ROLE_SYSTEM && chat.Text(m) != "" {
			at.system = i
		}
	}
	parts := func(i int) int {
		if i < 0 || messages[i].GetRole() != modelv1.Role_ROLE_USER {
			return 0
		}
		return len(messages[i].GetContent().GetList().GetParts())
	}
	last := len(messages) - 1
	if n := parts(last); n >= 2 {
		at.message, at.part = last, n-2
	} else if n := parts(last - 1); n > 0 {
		at.message, at.part = last-1, n-1
	}
	return at
}

// ephemeralMark writes the member that marks an object.
func (e *encoder) ephemeralMark(marked bool) {
	if marked {
		e.Body.RawMember("cache_control", `{"type":"ephemeral"}`)
	}
}
