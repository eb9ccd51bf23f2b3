package openaichat

import (
	"cmp"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/cachemark"
	"github.com/evalfleet/evalfleet/pkg/enum"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
)

// Members of a message in which some servers send reasoning, and expect it back. The internal JSON of a reasoning part
// records which one.
const (
	memberReasoningContent = "reasoning_content"
	memberReasoning        = "reasoning"
)

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

func (e *encoder) messages() {
	e.Member("messages", func() {
		for i, m := range jsonwrite.List(e.Body, e.Messages) {
			e.message(i, m)
		}
	})
}

func (e *encoder) message(i int, m *modelv1.ChatMessage) {
	e.Body.BeginObject()
	switch m.GetRole() {
	case modelv1.Role_ROLE_USER:
		e.Body.TextMember("role", "user")
		e.Body.Key("content")
		e.userContent(i, m.GetContent())
	case modelv1.Role_ROLE_ASSISTANT:
		e.assistant(m)
	case modelv1.Role_ROLE_TOOL:
		e.tooled(m)
	default:
		e.Body.TextMember("role", cmp.Or(e.SystemRole, "system"))
		if i == e.ephemeral.system {
			e.Body.BeginListMember("content")
			e.Body.BeginObject()
			e.Body.TextMember("type", "text")
			e.Body.TextMember("text", chat.Text(m))
			e.ephemeralMark(true)
			e.Body.EndObject()
			e.Body.EndList()
		} else if ends := e.marks.EndsSystem(i); ends || e.marks.Set() && cachemark.In(m) {
			e.Body.Key("content")
			e.markedSystem(m, ends)
		} else if e.AnswerParts && m.GetContent().GetList() != nil {
			e.Body.Key("content")
			e.userContent(i, m.GetContent())
		} else {
			e.Body.TextMember("content", chat.Text(m))
		}
	}
	e.Body.EndObject()
}

// tooled writes a tool's result: its text, or its error.
func (e *encoder) tooled(m *modelv1.ChatMessage) {
	e.Body.TextMember("role", "tool")
	e.Body.TextMember("content", chat.ResultText(m))
	e.Body.TextMember("tool_call_id", chat.CallID(m))
}

func (e *encoder) userContent(message int, c *contentv1.MessageContent) {
	list := c.GetList()
	if list == nil {
		e.Body.Text(c.GetText())
		return
	}
	for i, part := range jsonwrite.Objects(e.Body, list.GetParts()) {
		e.userPart(part)
		e.ephemeralMark(message == e.ephemeral.message && i == e.ephemeral.part)
	}
}

func (e *encoder) userPart(part *contentv1.Content) {
	if e.ImagesOnly && part.GetText() == nil && part.GetImage() == nil {
		e.Refuse("messages", "content in a user message that is neither text nor image")
	}
	switch p := part.GetPart().(type) {
	case *contentv1.Content_Text:
		e.text(part, false)
	case *contentv1.Content_Image:
		detail := p.Image.GetDetail()
		switch detail { //nolint:exhaustive // The format has the others.
		case contentv1.ImageDetail_IMAGE_DETAIL_UNSPECIFIED:
			detail = contentv1.ImageDetail_IMAGE_DETAIL_AUTO
		case contentv1.ImageDetail_IMAGE_DETAIL_ORIGINAL: // the format knows nothing closer
			detail = contentv1.ImageDetail_IMAGE_DETAIL_HIGH
		}
		e.Body.TextMember("type", "image_url")
		e.Body.TextObjectMember("image_url", "url", p.Image.GetMedia().GetUri(), "detail", enum.Word(detail))
	case *contentv1.Content_Audio:
		_, data, inline := dialect.SplitDataURI(p.Audio.GetMedia().GetUri())
		if !inline {
			e.Refuse("messages", "audio that is not a data URI")
		}
		e.Body.TextMember("type", "input_audio")
		e.Body.TextObjectMember("input_audio", "data", data, "format", enum.Word(p.Audio.GetFormat()))
	case *contentv1.Content_Document:
		e.Body.TextMember("type", "file")
		e.Body.TextObjectMember("file", "file_data", p.Document.GetMedia().GetUri(), "filename", dialect.FileName(p.Document))
	case *contentv1.Content_Video:
		e.Refuse("messages", "video")
	default:
		e.Refuse("messages", "content in a user message that is neither text, image, audio nor document")
	}
}

// assistant writes a model's message. Text and reasoning parts of a list become one text, each part on a line of its
// own; reasoning that came in a member of its own goes back there; other parts have no place in the format, of which
// one that takes the place of earlier messages is refused.
func (e *encoder) assistant(m *modelv1.ChatMessage) {
	e.Body.TextMember("role", "assistant")
	list := m.GetContent().GetList()
	if list == nil {
		e.content(m, m.GetContent().GetText())
		return
	}
	if e.AnswerParts {
		e.answerParts(m, list.GetParts())
		return
	}
	var text strings.Builder
	var members []dialect.Member
	joins := e.JoinTexts && !slices.ContainsFunc(list.GetParts(), needsTags)
	lines := 0
	line := func(part, after string) {
		e.line(&text, lines == 0, part, after)
		lines++
	}
	for _, part := range list.GetParts() {
		switch p := part.GetPart().(type) {
		case *contentv1.Content_Text:
			if joins {
				text.WriteString(p.Text.GetText())
				continue
			}
			line(p.Text.GetText(), "")
			if internal := part.GetInternalJson(); internal != "" && !e.PlainTurns {
				text.WriteString("\n<" + dialect.WrapInternal(internal) + ">\n")
			}
		case *contentv1.Content_Reasoning:
			thought, own := e.replay(part)
			if thought != "" {
				line(thought, "\n")
			}
			members = withMembers(members, own)
		case *contentv1.Content_Data:
			if dialect.IsCompaction(part) {
				e.Refuse("messages", dialect.OtherCompaction)
			}
		}
	}
	e.content(m, text.String())
	for _, member := range members {
		e.Body.RawMember(member.Name, member.JSON)
	}
}

// needsTags reports whether the format has no place for a part, or for what belongs to it, but within a text.
func needsTags(part *contentv1.Content) bool {
	return part.GetReasoning() != nil || part.GetText() != nil && part.GetInternalJson() != ""
}

// answerParts writes the texts and images of a model's message: one text as a text, and else a list.
func (e *encoder) answerParts(m *modelv1.ChatMessage, all []*contentv1.Content) {
	var parts []*contentv1.Content
	for _, part := range all {
		switch {
		case part.GetText() != nil || part.GetImage() != nil:
			parts = append(parts, part)
		case dialect.IsCompaction(part):
			e.Refuse("messages", dialect.OtherCompaction)
		}
	}
	if len(parts) == 0 || len(parts) == 1 && parts[0].GetText() != nil {
		e.content(m, chat.Text(m))
		return
	}
	e.Body.Key("content")
	for _, part := range jsonwrite.Objects(e.Body, parts) {
		e.userPart(part)
	}
	e.calls(m.GetToolCalls())
}

// withMembers adds members, which replace those of the same name.
func withMembers(members, added []dialect.Member) []dialect.Member {
	for _, member := range added {
		members = slices.DeleteFunc(members, func(m dialect.Member) bool { return m.Name == member.Name })
		members = append(members, member)
	}
	return members
}

// replay returns reasoning as it is sent: as a text, and as members of the message.
func (e *encoder) replay(part *contentv1.Content) (text string, members []dialect.Member) {
	if e.Replay != nil {
		return e.Replay(part)
	}
	if member := ownMember(part); member != "" {
		return "", []dialect.Member{dialect.TextMember(member, part.GetReasoning().GetReasoning())}
	}
	return dialect.Think(part), nil
}

// Details returns the reasoning details that a server sent with reasoning, a list as JSON; ok is false if it sent none.
func Details(part *contentv1.Content) (list string, ok bool) {
	return strings.CutPrefix(part.GetReasoning().GetSignature(), detailsScheme)
}

// line adds a part to a text, on a line of its own.
func (e *encoder) line(text *strings.Builder, first bool, part, after string) {
	switch {
	case !e.PlainTurns:
		text.WriteString("\n" + part + after)
	case first:
		text.WriteString(part)
	default:
		text.WriteString("\n" + part)
	}
}

// content writes the text of an assistant's message, and its calls.
func (e *encoder) content(m *modelv1.ChatMessage, text string) {
	if text == "" && e.FillEmpty {
		text = dialect.NoContent
	}
	switch calls := len(m.GetToolCalls()) > 0; {
	case calls && e.JoinTexts && strings.TrimSpace(text) == "":
		e.Body.Key("content")
		e.Body.Null()
	case text != "" || !e.OmitEmpty || !calls:
		e.Body.TextMember("content", text)
	}
	e.calls(m.GetToolCalls())
}

// ownMember returns the member of the reasoning's origin; empty if it was not in a member.
func ownMember(part *contentv1.Content) string {
	var name string
	if json.Unmarshal([]byte(part.GetInternalJson()), &name) != nil {
		return ""
	}
	if name == memberReasoning || name == memberReasoningContent {
		return name
	}
	return ""
}

func (e *encoder) calls(calls []*toolv1.ToolCall) {
	if len(calls) > 0 || e.EmptyCalls {
		writeCalls(e.Body, calls)
	}
}

func writeCalls(w *jsonwrite.Writer, calls []*toolv1.ToolCall) {
	w.Key("tool_calls")
	for _, call := range jsonwrite.Objects(w, calls) {
		w.TextMember("id", call.GetId())
		w.TextMember("type", "function")
		w.TextObjectMember("function", "name", call.GetFunction(), "arguments", dialect.ArgumentsOf(call))
	}
}
