package gemini

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/arrange"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/headtail"
)

// Roles of a turn. Results of tools are in turns of the user.
const (
	roleUser  = "user"
	roleModel = "model"
)

// noContent replaces an empty message or text of a user, since the API refuses turns without content, and an empty
// answer.
const noContent = dialect.NoContent

func isResult(m *modelv1.ChatMessage) bool { return m.GetRole() == modelv1.Role_ROLE_TOOL }

// instruction writes all system messages as one turn.
func (e *encoder) instruction() {
	e.turn(roleUser, func() {
		for _, m := range e.Messages {
			if arrange.IsSystem(m) {
				e.texts(m)
			}
		}
	})
}

// texts writes the texts of a message, each as a part.
func (e *encoder) texts(m *modelv1.ChatMessage) {
	for _, part := range chat.Parts(m.GetContent()) {
		if text := part.GetText(); text != nil {
			e.Body.TextObject("text", text.GetText())
		}
	}
}

// contents writes the turns of the conversation. Results that follow each other are one turn, as the calls are.
func (e *encoder) contents() {
	e.Body.BeginList()
	for i := 0; i < len(e.Messages); i++ {
		switch m := e.Messages[i]; {
		case arrange.IsSystem(m):
		case m.GetRole() == modelv1.Role_ROLE_ASSISTANT:
			e.turn(roleModel, func() { e.assistant(m) })
		case isResult(m):
			end := i + 1
			for end < len(e.Messages) && isResult(e.Messages[end]) {
				end++
			}
			e.turn(roleUser, func() {
				for at, result := range e.Messages[i:end] {
					if result.GetFunction() == "" { // The API refuses it without saying which.
						e.refuse(fmt.Sprintf("the result in message %d of the call %q, which is not in the conversation and so names no function",
							i+at, headtail.Cut(chat.CallID(result), maxIDSaid)))
					}
					e.result(result)
				}
			})
			i = end - 1
		default:
			e.turn(roleUser, func() { e.user(m) })
		}
	}
	e.Body.EndList()
}

// maxIDSaid bounds what a refusal repeats of an id, in bytes.
const maxIDSaid = 100

// turn writes a turn, which has at least one part.
func (e *encoder) turn(role string, parts func()) {
	e.Body.BeginObject()
	e.Body.TextMember("role", role)
	e.Body.BeginListMember("parts")
	before := len(e.Body.Bytes())
	parts()
	if len(e.Body.Bytes()) == before {
		e.Body.TextObject("text", noContent)
	}
	e.Body.EndList()
	e.Body.EndObject()
}

func (e *encoder) user(m *modelv1.ChatMessage) {
	for _, part := range spoken(m) {
		e.Body.BeginObject()
		e.userPart(part)
		e.Body.EndObject()
	}
}

// spoken are the parts of a message. One that is an empty text has a part that says so.
func spoken(m *modelv1.ChatMessage) []*contentv1.Content {
	if m.GetContent().GetList() == nil && m.GetContent().GetText() == "" {
		return []*contentv1.Content{chat.TextPart(noContent)}
	}
	return chat.Parts(m.GetContent())
}

// userPart writes the member that is a part of a user's message.
func (e *encoder) userPart(part *contentv1.Content) {
	if text := part.GetText(); text != nil {
		e.Body.TextMember("text", cmp.Or(text.GetText(), noContent))
		return
	}
	media := chat.Media(part)
	if media == nil {
		e.refuse("content in a user message that is neither text, image, audio, video nor document")
		return
	}
	mediaType, data, inline := dialect.SplitDataURI(media.GetUri())
	if !inline {
		e.refuse("media that is not a data URI")
	}
	if address := e.Files[media.GetUri()]; address != "" {
		e.Body.TextObjectMember("fileData", "file_uri", address, "mime_type", mediaType)
		return
	}
	writeInline(e.Body, "mime_type", mediaType, data)
}

// result writes a tool's result, or its error, and then the media in it.
func (e *encoder) result(m *modelv1.ChatMessage) {
	if e.Computer != "" && m.GetFunction() == e.Computer {
		e.computerResult(m)
		return
	}
	member, text := memberOutput, chat.Text(m)
	if failure := m.GetError(); failure != nil {
		member, text = memberError, failure.GetMessage()
	}
	e.Body.BeginObject()
	e.Body.BeginObjectMember("functionResponse")
	if len(m.GetToolCallIds()) > 0 {
		e.Body.TextMember("id", chat.CallID(m))
	}
	e.Body.TextMember("name", m.GetFunction())
	e.Body.TextObjectMember("response", member, text)
	e.Body.EndObject()
	e.Body.EndObject()
	e.media(m)
}

// media writes the parts of a tool's result that are no texts.
func (e *encoder) media(m *modelv1.ChatMessage) {
	for _, part := range m.GetContent().GetList().GetParts() {
		if part.GetText() == nil {
			e.Body.BeginObject()
			e.userPart(part)
			e.Body.EndObject()
		}
	}
}

// WaitFunction is the function of a computer that waits. It also replaces a function that is not known, since it has no
// other effect.
const WaitFunction = "wait_5_seconds"

// computerResult writes the result of an action, with the screenshot in it. The server requires an acknowledgement of
// some actions; the platform's own approval of the call has given it.
func (e *encoder) computerResult(m *modelv1.ChatMessage) {
	id, text := chat.CallID(m), chat.Text(m)
	if failure := m.GetError(); failure != nil {
		text = failure.GetMessage()
	}
	e.Body.BeginObject()
	e.Body.BeginObjectMember("functionResponse")
	e.Body.TextUnlessEmpty("id", id)
	e.Body.TextMember("name", cmp.Or(e.functions[id], WaitFunction))
	e.Body.TextObjectMember("response", "content", text, "safety_acknowledgement", "true", "url", "")
	e.Body.BeginListMember("parts")
	e.media(m)
	e.Body.EndList()
	e.Body.EndObject()
	e.Body.EndObject()
}

// Members of a function's response.
const (
	memberOutput = "output"
	memberError  = "error"
)

// assistant writes the parts of a model's message.
func (e *encoder) assistant(m *modelv1.ChatMessage) {
	parts := spoken(m)
	if slices.ContainsFunc(parts, func(part *contentv1.Content) bool { return part.GetData() != nil }) {
		e.refuse("data of a model's message")
	}
	for _, call := range m.GetToolCalls() {
		e.CheckCall(call)
		if e.Computer != "" {
			e.functions[call.GetId()] = call.GetFunction()
		}
	}
	t := &turnWriter{w: e.Body, calls: m.GetToolCalls(), thinkTags: e.ThinkTags}
	t.write(parts)
}
