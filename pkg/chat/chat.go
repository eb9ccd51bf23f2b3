// Package chat makes and reads messages, content, configurations and outputs. The generated protocol messages are the
// only representation of a conversation; this package adds constructors, the text of a message, sums of usage, the
// layers of a configuration, and the JSON form.
//
// The JSON form is that of Inspect logs and task files: `{"role": "user", "content": "…"}`. It has two levels of
// strictness. Parse… reads present input: missing message ids are created, unknown options are faults. ParseStored…
// reads a record: ids stay as they are, unknown options are dropped. Writing omits absent fields. Only what the
// protocol cannot represent is lost: an empty list of citations or of a user message's tool_call_id is written as none.
// Who can read the seal of reasoning has no place of its own: it is a member of `internal`, unless that is no object.
//
// All functions are safe for concurrent use as long as their arguments are not modified.
package chat

import (
	"crypto/rand"
	"encoding/binary"
	"math/bits"
	"slices"

	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
)

const (
	// idAlphabet leaves out the digits and letters that people take for one another.
	idAlphabet = "23456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
	idLength   = 22
)

// NewID returns an identity for a message: 128 random bits as 22 characters, the short form of a UUID.
func NewID() string {
	var random [16]byte
	_, _ = rand.Read(random[:]) // never fails
	random[6] = random[6]&0x0f | 0x40
	random[8] = random[8]&0x3f | 0x80
	const base = uint64(len(idAlphabet))
	high, low := binary.BigEndian.Uint64(random[:]), binary.BigEndian.Uint64(random[8:])
	var id [idLength]byte
	for i := idLength - 1; i >= 0; i-- {
		var digit uint64
		low, digit = bits.Div64(high%base, low, base)
		high /= base
		id[i] = idAlphabet[digit]
	}
	return string(id[:])
}

// System returns a system message with a fresh id.
func System(text string) *modelv1.ChatMessage { return message(modelv1.Role_ROLE_SYSTEM, text) }

// User returns a user message with a fresh id.
func User(text string) *modelv1.ChatMessage { return message(modelv1.Role_ROLE_USER, text) }

// Assistant returns an assistant message with a fresh id.
func Assistant(text string, calls ...*toolv1.ToolCall) *modelv1.ChatMessage {
	m := message(modelv1.Role_ROLE_ASSISTANT, text)
	m.ToolCalls = calls
	return m
}

// ToolMessage returns a message, with a new id, that holds the result of a call. Nil content is an empty text.
func ToolMessage(result *toolv1.ToolResult) *modelv1.ChatMessage {
	content := result.GetContent()
	if content == nil {
		content = TextContent("")
	}
	return &modelv1.ChatMessage{
		Id:          NewID(),
		Role:        modelv1.Role_ROLE_TOOL,
		Content:     content,
		ToolCallIds: []string{result.GetCallId()},
		Function:    result.GetFunction(),
		Error:       result.GetError(),
	}
}

// Call returns a function call. Arguments are the text of a JSON object; empty is `{}`.
func Call(id, function, argumentsJSON string) *toolv1.ToolCall {
	return &toolv1.ToolCall{Id: id, Function: function, ArgumentsJson: argumentsJSON, Type: toolv1.ToolCallType_TOOL_CALL_TYPE_FUNCTION}
}

func message(role modelv1.Role, text string) *modelv1.ChatMessage {
	return &modelv1.ChatMessage{Id: NewID(), Role: role, Content: TextContent(text)}
}

// TextContent returns content that is one plain text.
func TextContent(text string) *contentv1.MessageContent {
	return &contentv1.MessageContent{Form: &contentv1.MessageContent_Text{Text: text}}
}

// ListContent returns content that is a list of parts.
func ListContent(parts ...*contentv1.Content) *contentv1.MessageContent {
	return &contentv1.MessageContent{Form: &contentv1.MessageContent_List{List: &contentv1.ContentList{Parts: parts}}}
}

// TextPart returns a part that is a text.
func TextPart(text string) *contentv1.Content {
	return &contentv1.Content{Part: &contentv1.Content_Text{Text: &contentv1.Text{Text: text}}}
}

// ReasoningPart returns a part that is open reasoning.
func ReasoningPart(reasoning string) *contentv1.Content {
	return &contentv1.Content{Part: &contentv1.Content_Reasoning{Reasoning: &contentv1.Reasoning{Reasoning: reasoning}}}
}

// ImagePart returns a part that is an image at a data URI or URL.
func ImagePart(uri string) *contentv1.Content {
	return &contentv1.Content{Part: &contentv1.Content_Image{Image: &contentv1.Image{Media: uriMedia(uri), Detail: contentv1.ImageDetail_IMAGE_DETAIL_AUTO}}}
}

// SealedPart returns a part that is reasoning which only its provider reads. summary is what is known of it; nil is
// nothing.
func SealedPart(seal string, summary *string) *contentv1.Content {
	part := ReasoningPart(seal)
	part.GetReasoning().Summary, part.GetReasoning().Redacted = summary, true
	return part
}

// Refuses reports whether a message has a text that is a refusal.
func Refuses(m *modelv1.ChatMessage) bool {
	return slices.ContainsFunc(Parts(m.GetContent()), func(part *contentv1.Content) bool { return part.GetText().GetRefusal() })
}

// RefusalPart returns a part that is the model's refusal.
func RefusalPart(text string) *contentv1.Content {
	part := TextPart(text)
	part.GetText().Refusal = new(true)
	return part
}

// DocumentPart returns a part that is a document at a data URI or URL. A media type or a name that is not known is
// empty.
func DocumentPart(uri, mediaType, filename string) *contentv1.Content {
	return &contentv1.Content{Part: &contentv1.Content_Document{Document: &contentv1.Document{Media: uriMedia(uri), MimeType: mediaType, Filename: filename}}}
}

// ToolUsePart returns a part that is what a tool of the provider did.
func ToolUsePart(use *contentv1.ToolUse) *contentv1.Content {
	return &contentv1.Content{Part: &contentv1.Content_ToolUse{ToolUse: use}}
}

// Generated returns a model's message with a fresh id, without content.
func Generated(model string) *modelv1.ChatMessage {
	return &modelv1.ChatMessage{Id: NewID(), Role: modelv1.Role_ROLE_ASSISTANT, Model: model, Source: modelv1.MessageSource_MESSAGE_SOURCE_GENERATE}
}

// CallID returns the id of the call whose result a message is; empty if it names none.
func CallID(m *modelv1.ChatMessage) string {
	if ids := m.GetToolCallIds(); len(ids) > 0 {
		return ids[0]
	}
	return ""
}
