package openairesponses

import (
	"cmp"
	"encoding/json"
	"slices"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/hosted"
	"github.com/evalfleet/evalfleet/pkg/enum"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
)

// input writes the conversation as items.
func (e *encoder) input() {
	e.Member("input", func() {
		for i, m := range jsonwrite.List(e.Body, e.Messages) {
			switch m.GetRole() {
			case modelv1.Role_ROLE_USER:
				e.user(chat.Parts(m.GetContent()))
			case modelv1.Role_ROLE_ASSISTANT:
				e.assistant(m)
			case modelv1.Role_ROLE_TOOL:
				e.result(m)
			default:
				e.prompt("developer", chat.Parts(m.GetContent()), e.marks.EndsSystem(i))
			}
		}
	})
}

// user writes a user's message. A part that takes the place of earlier messages is an item of its own, before the rest.
func (e *encoder) user(parts []*contentv1.Content) {
	rest := slices.DeleteFunc(slices.Clone(parts), func(part *contentv1.Content) bool {
		item := kept.JSON(part)
		if item != "" {
			e.Body.Raw(item)
		}
		return item != ""
	})
	if len(rest) > 0 || len(parts) == 0 {
		e.prompt("user", rest, false)
	}
}

// prompt writes a message that is not the assistant's; ends marks its end for the prompt cache.
func (e *encoder) prompt(role string, parts []*contentv1.Content, ends bool) {
	e.Body.BeginObject()
	e.Body.TextMember("type", typeMessage)
	e.Body.TextMember("role", role)
	e.Body.Key("content")
	e.parts(parts, ends)
	e.Body.EndObject()
}

// parts writes content for the model.
func (e *encoder) parts(parts []*contentv1.Content, ends bool) {
	for i, part := range jsonwrite.Objects(e.Body, parts) {
		e.part(part, ends && i == len(parts)-1)
	}
}

func (e *encoder) part(part *contentv1.Content, ends bool) {
	switch p := part.GetPart().(type) {
	case *contentv1.Content_Text:
		e.Body.TextMember("type", partInputText)
		e.Body.TextMember("text", p.Text.GetText())
		e.marks.Write(e.Body, part, ends)
	case *contentv1.Content_Image:
		e.Body.TextMember("type", partInputImage)
		e.Body.TextMember("image_url", p.Image.GetMedia().GetUri())
		e.Body.TextMember("detail", cmp.Or(enum.Word(p.Image.GetDetail()), "auto"))
	case *contentv1.Content_Audio:
		e.file(p.Audio.GetMedia().GetUri(), "audio."+enum.Word(p.Audio.GetFormat()))
	case *contentv1.Content_Document:
		e.file(p.Document.GetMedia().GetUri(), dialect.FileName(p.Document))
	case *contentv1.Content_Video:
		e.file(p.Video.GetMedia().GetUri(), "video."+enum.Word(p.Video.GetFormat()))
	default:
		e.Refuse("messages", "content in a message to the model that is neither text, image, audio, video nor document")
	}
}

// file writes the members of a file: its data, or its address.
func (e *encoder) file(uri, name string) {
	e.Body.TextMember("type", partInputFile)
	if _, _, inline := dialect.SplitDataURI(uri); !inline {
		e.Body.TextMember("file_url", uri)
		return
	}
	e.Body.TextMember("file_data", uri)
	e.Body.TextMember("filename", name)
}

// maxCallID bounds the id of a call in bytes, as the API does.
const maxCallID = 64

// result writes a tool's result: its content, or the message of its error and its media.
func (e *encoder) result(m *modelv1.ChatMessage) {
	if e.computerResult(chat.CallID(m), m) {
		return
	}
	e.Body.BeginObject()
	e.Body.TextMember("type", typeResult)
	e.Body.TextMember("call_id", dialect.ShortCallID(chat.CallID(m), maxCallID))
	parts, failure := m.GetContent().GetList().GetParts(), m.GetError()
	if failure != nil { // Of the result of a failed call the media are kept, after the message of its error.
		parts = slices.DeleteFunc(slices.Clone(parts), func(part *contentv1.Content) bool { return chat.Media(part) == nil })
		if text := failure.GetMessage(); text != "" && len(parts) > 0 {
			parts = slices.Insert(parts, 0, chat.TextPart(text))
		}
	}
	e.Body.Key("output")
	switch {
	case failure != nil && len(parts) == 0:
		e.Body.Text(failure.GetMessage())
	case m.GetContent().GetList() != nil:
		e.parts(parts, false)
	default:
		e.Body.Text(m.GetContent().GetText())
	}
	e.Body.EndObject()
}

// assistant writes a model's turn: an item for each part and each call.
func (e *encoder) assistant(m *modelv1.ChatMessage) {
	isUse := func(part *contentv1.Content) bool { return part.GetToolUse() != nil }
	isReasoning := func(part *contentv1.Content) bool { return part.GetReasoning() != nil }
	parts, calls := dialect.AnswerParts(m), m.GetToolCalls()
	t := &turn{encoder: e, works: len(calls) > 0 || slices.ContainsFunc(parts, isUse)}
	for _, part := range parts {
		if part.GetText() != nil && part.GetText().GetText() == "" && len(calls) > 0 {
			continue // as of a message that is no list, see dialect.AnswerParts
		}
		t.write(part)
	}
	if e.FillEmpty && len(calls) == 0 && slices.ContainsFunc(parts, isReasoning) && !slices.ContainsFunc(parts, says) {
		t.say(chat.TextPart(dialect.NoContent), "")
	}
	t.flush()
	for _, call := range calls {
		e.call(call)
	}
}

// turn writes the parts of a model's turn. Neighbouring texts are one message, unless they came in several.
type turn struct {
	*encoder
	// works means that the turn uses tools.
	works bool
	// said are the texts that are not yet written, and saidIn is their phase.
	said   []*contentv1.Content
	saidIn string
}

// write writes a part. Images follow as a user's message, since a message of the assistant has no place for them; parts
// of other kinds have no place in the format.
func (t *turn) write(part *contentv1.Content) {
	switch p := part.GetPart().(type) {
	case *contentv1.Content_Text:
		t.say(part, t.phase(part, t.works))
	case *contentv1.Content_Reasoning:
		t.flush()
		t.reasoning(p.Reasoning)
	case *contentv1.Content_ToolUse:
		t.flush()
		if p.ToolUse.GetToolType() == contentv1.ToolUseType_TOOL_USE_TYPE_CODE_EXECUTION {
			t.say(hosted.OpenAICodeText(p.ToolUse), "")
		} else {
			hosted.WriteOpenAI(t.Body, p.ToolUse)
		}
	case *contentv1.Content_Image:
		t.flush()
		t.prompt("user", []*contentv1.Content{part}, false)
	case *contentv1.Content_Data:
		switch item := kept.JSON(part); {
		case item != "":
			t.flush()
			t.Body.Raw(item)
		case dialect.IsCompaction(part):
			t.Refuse("messages", dialect.OtherCompaction)
		}
	}
}

// say adds a text in a phase.
func (t *turn) say(part *contentv1.Content, phase string) {
	if len(t.said) > 0 && (originOf(t.said[0]).ID != originOf(part).ID || t.saidIn != phase) {
		t.flush()
	}
	t.said, t.saidIn = append(t.said, part), phase
}

// flush writes the texts.
func (t *turn) flush() {
	if len(t.said) > 0 {
		t.texts(t.said, t.saidIn)
		t.said = nil
	}
}

// says reports whether a part is more than reasoning, and has a place in the format.
func says(part *contentv1.Content) bool {
	return part.GetReasoning() == nil && (part.GetData() == nil || kept.JSON(part) != "")
}

// texts writes texts of the assistant as one message. Its id is left out: a server that stores nothing requires the
// reasoning before an item with an id, and the history may lack it.
func (e *encoder) texts(parts []*contentv1.Content, phase string) {
	e.Body.BeginObject()
	e.Body.TextMember("type", typeMessage)
	e.Body.TextMember("role", "assistant")
	e.Body.TextMember("status", statusCompleted)
	e.Body.TextUnlessEmpty("phase", phase)
	e.Body.Key("content")
	for _, part := range jsonwrite.List(e.Body, parts) {
		writeText(e.Body, part.GetText(), nil)
	}
	e.Body.EndObject()
}

// originOf is the message as which a text came; empty if it did not come in this format.
func originOf(part *contentv1.Content) (o origin) {
	_ = json.Unmarshal([]byte(part.GetInternalJson()), &o)
	return o
}

// phase is the phase of a text: the server's own, or if phases are sent, that of a comment where the model's turn uses
// tools, and else that of a final answer.
func (e *encoder) phase(part *contentv1.Content, works bool) string {
	origin := originOf(part)
	switch {
	case origin.Phase != "" || !e.Phases:
		return origin.Phase
	case works:
		return "commentary"
	default:
		return "final_answer"
	}
}

// reasoning writes a model's reasoning back: its id and its sealed form, or its summary if it is not sealed. The server
// does not take readable reasoning.
func (e *encoder) reasoning(r *contentv1.Reasoning) {
	e.Body.BeginObject()
	e.Body.TextMember("type", typeReasoning)
	e.Body.TextUnlessEmpty("id", r.GetSignature())
	e.Body.BeginListMember("summary")
	if summary := r.GetSummary(); summary != "" && !r.GetRedacted() {
		e.Body.TextObject("type", partSummary, "text", summary)
	}
	e.Body.EndList()
	e.Body.RawMember("content", "[]")
	e.Body.Key("encrypted_content")
	if r.GetRedacted() {
		e.Body.Text(r.GetReasoning())
	} else {
		e.Body.Null()
	}
	e.Body.EndObject()
}

func (e *encoder) call(call *toolv1.ToolCall) {
	if !e.computer(call) {
		e.Body.TextObject("type", typeCall, "call_id", dialect.ShortCallID(call.GetId(), maxCallID), "name", call.GetFunction(), "arguments", dialect.ArgumentsOf(call))
	}
}
