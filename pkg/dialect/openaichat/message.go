package openaichat

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/openai"
	"github.com/evalfleet/evalfleet/pkg/enum"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
)

// Members of a message in which some servers send reasoning, and expect it back. The internal JSON of a reasoning part
// records which one.
const (
	memberReasoningContent = "reasoning_content"
	memberReasoning        = "reasoning"
)

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

func (e *encoder) messages() (err error) {
	e.member("messages", func() {
		e.w.BeginList()
		for i, m := range e.Messages {
			if failure := e.message(i, m); failure != nil && err == nil {
				err = failure
			}
		}
		e.w.EndList()
	})
	return err
}

func (e *encoder) message(i int, m *modelv1.ChatMessage) (err error) {
	e.w.BeginObject()
	switch m.GetRole() {
	case modelv1.Role_ROLE_USER:
		e.w.TextMember("role", "user")
		e.w.Key("content")
		err = e.userContent(m.GetContent())
	case modelv1.Role_ROLE_ASSISTANT:
		e.assistant(m)
	case modelv1.Role_ROLE_TOOL:
		e.tooled(m)
	default:
		role := e.SystemRole
		if role == "" {
			role = "system"
		}
		e.w.TextMember("role", role)
		if ends := e.marks.EndsSystem(i); ends || e.marks.Set() && openai.HasMarks(m) {
			e.w.Key("content")
			e.markedSystem(m, ends)
		} else {
			e.w.TextMember("content", chat.Text(m))
		}
	}
	e.w.EndObject()
	return err
}

// tooled writes a tool's result: its text, or its error.
func (e *encoder) tooled(m *modelv1.ChatMessage) {
	text := chat.Text(m)
	if failure := m.GetError(); failure != nil {
		text = "Error: " + failure.GetMessage()
	}
	e.w.TextMember("role", "tool")
	e.w.TextMember("content", text)
	id := ""
	if ids := m.GetToolCallIds(); len(ids) > 0 {
		id = ids[0]
	}
	e.w.TextMember("tool_call_id", id)
}

func (e *encoder) userContent(c *contentv1.MessageContent) (err error) {
	list := c.GetList()
	if list == nil {
		e.w.Text(c.GetText())
		return nil
	}
	e.w.BeginList()
	for _, part := range list.GetParts() {
		e.w.BeginObject()
		if failure := e.userPart(part); failure != nil {
			err = failure
		}
		e.w.EndObject()
	}
	e.w.EndList()
	return err
}

func (e *encoder) userPart(part *contentv1.Content) error {
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
		e.w.TextMember("type", "image_url")
		e.w.Key("image_url")
		e.w.BeginObject()
		e.w.TextMember("url", p.Image.GetMedia().GetUri())
		e.w.TextMember("detail", enum.Word(detail))
		e.w.EndObject()
	case *contentv1.Content_Audio:
		_, data, inline := dialect.SplitDataURI(p.Audio.GetMedia().GetUri())
		if !inline {
			return unsupported("messages", "audio that is not a data URI")
		}
		e.w.TextMember("type", "input_audio")
		e.w.Key("input_audio")
		e.w.BeginObject()
		e.w.TextMember("data", data)
		e.w.TextMember("format", enum.Word(p.Audio.GetFormat()))
		e.w.EndObject()
	case *contentv1.Content_Document:
		e.w.TextMember("type", "file")
		e.w.Key("file")
		e.w.BeginObject()
		e.w.TextMember("file_data", p.Document.GetMedia().GetUri())
		e.w.TextMember("filename", p.Document.GetFilename())
		e.w.EndObject()
	case *contentv1.Content_Video:
		return unsupported("messages", "video")
	default:
		return unsupported("messages", "content in a user message that is neither text, image, audio nor document")
	}
	return nil
}

// assistant writes a model's message. Text and reasoning parts of a list become one text, each part on a line of its
// own; reasoning that came in a member of its own goes back there; other parts have no place in the format.
func (e *encoder) assistant(m *modelv1.ChatMessage) {
	e.w.TextMember("role", "assistant")
	list := m.GetContent().GetList()
	if list == nil {
		e.w.TextMember("content", m.GetContent().GetText())
		e.calls(m.GetToolCalls())
		return
	}
	var text strings.Builder
	own := map[string]string{}
	for _, part := range list.GetParts() {
		switch p := part.GetPart().(type) {
		case *contentv1.Content_Text:
			text.WriteString("\n" + p.Text.GetText())
			if internal := part.GetInternalJson(); internal != "" {
				text.WriteString("\n" + dialect.WrapInternal(internal) + "\n")
			}
		case *contentv1.Content_Reasoning:
			if member := ownMember(part); member != "" {
				own[member] = p.Reasoning.GetReasoning()
			} else {
				text.WriteString("\n" + dialect.Think(part) + "\n")
			}
		}
	}
	e.w.TextMember("content", text.String())
	e.calls(m.GetToolCalls())
	for _, member := range []string{memberReasoningContent, memberReasoning} {
		if reasoning, ok := own[member]; ok {
			e.w.TextMember(member, reasoning)
		}
	}
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
	if len(calls) == 0 {
		return
	}
	e.w.Key("tool_calls")
	e.w.BeginList()
	for _, call := range calls {
		arguments := call.GetArgumentsJson()
		if arguments == "" {
			arguments = "{}"
		}
		e.w.BeginObject()
		e.w.TextMember("id", call.GetId())
		e.w.TextMember("type", "function")
		e.w.Key("function")
		e.w.BeginObject()
		e.w.TextMember("name", call.GetFunction())
		e.w.TextMember("arguments", arguments)
		e.w.EndObject()
		e.w.EndObject()
	}
	e.w.EndList()
}
