package bedrockconverse

import (
	"slices"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/arrange"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
)

// Roles of a turn. Results of tools are in turns of the user.
const (
	roleUser      = "user"
	roleAssistant = "assistant"
)

// noContent is the text of a message without content, which the API refuses.
const noContent = dialect.NoContent

func roleOf(m *modelv1.ChatMessage) string {
	if m.GetRole() == modelv1.Role_ROLE_ASSISTANT {
		return roleAssistant
	}
	return roleUser
}

// instructions are the texts of the system messages that have one.
func (e *encoder) instructions() []string {
	var texts []string
	for _, m := range e.Request.Messages {
		if text := chat.Text(m); arrange.IsSystem(m) && text != "" {
			texts = append(texts, text)
		}
	}
	return texts
}

func (e *encoder) system(texts []string) {
	e.Body.BeginList()
	for _, text := range texts {
		writeText(e.Body, text)
	}
	if e.Cache != NoCache {
		e.Body.Raw(cachePoint)
	}
	e.Body.EndList()
}

func writeText(w *jsonwrite.Writer, text string) {
	w.TextObject("text", text)
}

// turns writes the conversation: messages of one role that follow each other are one turn, since the API wants the
// roles to alternate.
func (e *encoder) turns() {
	turns := turnsOf(e.Messages)
	for i, messages := range jsonwrite.Objects(e.Body, turns) {
		e.Body.TextMember("role", roleOf(messages[0]))
		e.Body.BeginListMember("content")
		e.turn(messages)
		if e.Cache != NoCache && len(turns) > 1 && i >= len(turns)-2 {
			e.Body.Raw(cachePoint)
		}
		e.Body.EndList()
	}
}

func turnsOf(messages []*modelv1.ChatMessage) [][]*modelv1.ChatMessage {
	var turns [][]*modelv1.ChatMessage
	for _, m := range messages {
		switch last := len(turns) - 1; {
		case arrange.IsSystem(m):
		case last >= 0 && roleOf(turns[last][0]) == roleOf(m):
			turns[last] = append(turns[last], m)
		default:
			turns = append(turns, []*modelv1.ChatMessage{m})
		}
	}
	return turns
}

// turn writes the blocks of a turn. Models refuse other content beside results, so that what a user says after a result
// is in that result.
func (e *encoder) turn(messages []*modelv1.ChatMessage) {
	for i := 0; i < len(messages); i++ {
		switch m := messages[i]; m.GetRole() {
		case modelv1.Role_ROLE_ASSISTANT:
			e.assistant(m)
		case modelv1.Role_ROLE_TOOL:
			end := i + 1
			for end < len(messages) && messages[end].GetRole() != modelv1.Role_ROLE_TOOL {
				end++
			}
			e.result(m, messages[i+1:end])
			i = end - 1
		default:
			e.user(m)
		}
	}
}

func (e *encoder) user(m *modelv1.ChatMessage) {
	parts := chat.Parts(m.GetContent())
	for _, part := range parts {
		e.shown(part, "in a user message")
	}
	if len(parts) == 0 {
		writeText(e.Body, noContent)
	}
}

// shown writes a part that is a text or an image.
func (e *encoder) shown(part *contentv1.Content, where string) {
	switch {
	case part.GetText() != nil:
		writeText(e.Body, part.GetText().GetText())
	case part.GetImage() != nil:
		if !writeImage(e.Body, part.GetImage()) {
			e.refuse("an image " + where + " that is not a data URI of a png, jpeg, gif or webp")
		}
	default:
		e.refuse("content " + where + " that is neither text nor image")
	}
}

// imageFormats are the formats of images.
var imageFormats = []string{"png", "jpeg", "gif", "webp"}

// inline is the format and the data of an image; ok is false if the API does not take it.
func inline(image *contentv1.Image) (format, data string, ok bool) {
	mediaType, data, ok := dialect.SplitDataURI(image.GetMedia().GetUri())
	format, isImage := strings.CutPrefix(mediaType, "image/")
	return format, data, ok && isImage && slices.Contains(imageFormats, format)
}

// writeImage writes an image. It reports whether the format has it.
func writeImage(w *jsonwrite.Writer, image *contentv1.Image) bool {
	format, data, ok := inline(image)
	if !ok {
		return false
	}
	w.BeginObject()
	w.BeginObjectMember("image")
	w.TextMember("format", format)
	writeSource(w, data)
	w.EndObject()
	w.EndObject()
	return true
}

// writeSource writes the data of an image, in base64.
func writeSource(w *jsonwrite.Writer, data string) {
	w.TextObjectMember("source", "bytes", data)
}

// maxCallID bounds the id of a call in bytes, as the API does.
const maxCallID = 64

// Statuses of a tool's result.
const (
	statusSuccess = "success"
	statusError   = "error"
)

// result writes a tool's result and what follows it in the turn. The message of an error is not sent, as by the
// reference implementation: its content is what the model sees.
func (e *encoder) result(m *modelv1.ChatMessage, following []*modelv1.ChatMessage) {
	e.Body.BeginObject()
	e.Body.BeginObjectMember("toolResult")
	e.Body.TextMember("toolUseId", dialect.PlainCallID(chat.CallID(m), maxCallID))
	e.Body.Key("content")
	for _, said := range jsonwrite.List(e.Body, append([]*modelv1.ChatMessage{m}, following...)) {
		for _, part := range chat.Parts(said.GetContent()) {
			e.shown(part, "in or after a tool's result")
		}
	}
	status := statusSuccess
	if m.GetError() != nil {
		status = statusError
	}
	e.Body.TextMember("status", status)
	e.Body.EndObject()
	e.Body.EndObject()
}

// assistant writes the blocks of a model's message.
func (e *encoder) assistant(m *modelv1.ChatMessage) {
	before := len(e.Body.Bytes())
	switch parts := m.GetContent().GetList(); {
	case parts != nil:
		for _, part := range parts.GetParts() {
			e.said(part)
		}
	case m.GetContent().GetText() != "" || len(m.GetToolCalls()) == 0:
		writeText(e.Body, m.GetContent().GetText())
	}
	for _, call := range m.GetToolCalls() {
		e.CheckCall(call)
		writeCall(e.Body, dialect.PlainCallID(call.GetId(), maxCallID), call)
	}
	if len(e.Body.Bytes()) == before {
		writeText(e.Body, noContent)
	}
}

// said writes a part of a model's message.
func (e *encoder) said(part *contentv1.Content) {
	switch {
	case part.GetReasoning() == nil:
		e.shown(part, "in a model's message")
	case e.Thoughts == AsText:
		if !part.GetReasoning().GetRedacted() {
			writeText(e.Body, dialect.Think(unsigned(part.GetReasoning())))
		}
	case part.GetReasoning().GetRedacted():
		if sealed := sealedContent(part); sealed != "" {
			writeRedacted(e.Body, sealed)
		}
	case part.GetReasoning().GetReasoning() != "":
		writeReasoning(e.Body, part.GetReasoning().GetReasoning(), "")
	}
}

// unsigned is reasoning without a signature, which the model would read as text.
func unsigned(r *contentv1.Reasoning) *contentv1.Content {
	return &contentv1.Content{Part: &contentv1.Content_Reasoning{Reasoning: &contentv1.Reasoning{Reasoning: r.GetReasoning(), Summary: r.Summary}}}
}
