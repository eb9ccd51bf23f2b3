package dialect

import (
	"github.com/evalfleet/evalfleet/pkg/chat"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
)

// Turns collects messages from a format whose conversations are lists of smaller entries: neighbouring entries of the
// assistant are one message, and so are neighbouring parts of the user. The zero value is an empty conversation.
type Turns struct {
	messages []*modelv1.ChatMessage
	// heard are the parts of the user that are being collected.
	heard []*contentv1.Content
	// turn is the assistant's message that is being collected, with the parts of its content; nil if there is none.
	turn  *modelv1.ChatMessage
	parts []*contentv1.Content
	// called are the functions of the calls so far, by id.
	called map[string]string
}

// Add appends a message that is not the assistant's.
func (t *Turns) Add(m *modelv1.ChatMessage) {
	t.End()
	t.messages = append(t.messages, m)
}

// NewMessage returns a message, with a new id, of parts: one text is its content as such.
func NewMessage(role modelv1.Role, parts []*contentv1.Content) *modelv1.ChatMessage {
	m := &modelv1.ChatMessage{Id: chat.NewID(), Role: role, Content: chat.ListContent(parts...)}
	if len(parts) == 1 && parts[0].GetText() != nil {
		m.Content = chat.TextContent(parts[0].GetText().GetText())
	}
	return m
}

// Hear appends parts to the user's message.
func (t *Turns) Hear(parts ...*contentv1.Content) { t.heard = append(t.heard, parts...) }

// Say appends parts to the assistant's message, which may have none.
func (t *Turns) Say(parts ...*contentv1.Content) {
	t.assistant()
	t.parts = append(t.parts, parts...)
}

// Call appends a call to the assistant's message.
func (t *Turns) Call(call *toolv1.ToolCall) {
	m := t.assistant()
	m.ToolCalls = append(m.ToolCalls, call)
	if t.called == nil {
		t.called = map[string]string{}
	}
	t.called[call.GetId()] = call.GetFunction()
}

// Result appends the result of the call with an id.
func (t *Turns) Result(id string, content *contentv1.MessageContent) {
	t.Add(&modelv1.ChatMessage{Id: chat.NewID(), Role: modelv1.Role_ROLE_TOOL, Content: content, ToolCallIds: []string{id}, Function: t.called[id]})
}

// Outcome appends the result of a call of a function: its parts, or one empty text, beside a failure, which may be nil.
func (t *Turns) Outcome(id, function string, parts []*contentv1.Content, failure *toolv1.ToolCallError) {
	if len(parts) == 0 {
		parts = []*contentv1.Content{chat.TextPart("")}
	}
	m := NewMessage(modelv1.Role_ROLE_TOOL, parts)
	m.Function, m.ToolCallIds, m.Error = function, []string{id}, failure
	t.Add(m)
}

// Answer appends a whole message of the assistant.
func (t *Turns) Answer(parts []*contentv1.Content, calls []*toolv1.ToolCall) {
	m := NewMessage(modelv1.Role_ROLE_ASSISTANT, parts)
	m.Source, m.ToolCalls = modelv1.MessageSource_MESSAGE_SOURCE_GENERATE, calls
	t.Add(m)
}

// Messages returns the messages. It is called once, after the last entry.
func (t *Turns) Messages() []*modelv1.ChatMessage {
	t.End()
	return t.messages
}

// assistant returns the assistant's message that is being collected.
func (t *Turns) assistant() *modelv1.ChatMessage {
	if t.turn == nil {
		t.turn = chat.Generated("")
	}
	return t.turn
}

// End appends the message that is being collected, if there is one: what follows is another. One plain text is its
// content as such.
func (t *Turns) End() {
	if len(t.heard) > 0 {
		t.messages, t.heard = append(t.messages, NewMessage(modelv1.Role_ROLE_USER, t.heard)), nil
	}
	if t.turn == nil {
		return
	}
	switch {
	case len(t.parts) == 0:
		t.turn.Content = chat.TextContent("")
	case len(t.parts) == 1 && isPlain(t.parts[0]):
		t.turn.Content = chat.TextContent(t.parts[0].GetText().GetText())
	default:
		t.turn.Content = chat.ListContent(t.parts...)
	}
	t.messages = append(t.messages, t.turn)
	t.turn, t.parts = nil, nil
}

// isPlain reports whether a part is nothing but its text.
func isPlain(part *contentv1.Content) bool {
	text := part.GetText()
	return text != nil && part.GetInternalJson() == "" && !text.GetRefusal() && len(text.GetCitations()) == 0
}
