package anthropic

import (
	"cmp"
	"encoding/base64"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/citation"
	"github.com/evalfleet/evalfleet/pkg/dialect/computer"
	"github.com/evalfleet/evalfleet/pkg/dialect/hosted"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
)

// turns writes the turns of a conversation, and the turn that the server paused.
func (e *encoder) turns(turns []turn) {
	if len(e.Paused) > 0 {
		turns = append(turns, turn{role: roleAssistant, paused: e.Paused})
	}
	for _, t := range jsonwrite.Objects(e.Body, turns) {
		e.Body.TextMember("role", t.role)
		e.Body.Key("content")
		switch {
		case t.plain:
			e.Body.Text(t.blocks[0].text)
		case t.paused != nil:
			jsonwrite.RawList(e.Body, t.paused)
		default:
			e.blocks(t.blocks)
		}
	}
}

func (e *encoder) blocks(blocks []block) {
	for i := range jsonwrite.List(e.Body, blocks) {
		e.block(&blocks[i])
	}
}

func (e *encoder) block(b *block) {
	switch {
	case b.part.GetData() != nil:
		e.rawBlock(Kept.JSON(b.part), b.marked)
		return
	case b.answered != nil && hosted.IsAnthropicResult(b.answered.GetResult()):
		e.rawBlock(b.answered.GetResult(), b.marked)
		return
	}
	e.Body.BeginObject()
	switch {
	case b.called != nil:
		hosted.WriteAnthropicCall(e.Body, b.called)
	case b.answered != nil:
		hosted.WriteAnthropicResult(e.Body, b.answered)
	case b.call != nil:
		e.call(b.call)
	case b.result != nil:
		e.result(b.result)
	case b.part != nil:
		e.part(b)
	default:
		e.textBlock(b.text)
	}
	e.mark(b.marked)
	e.Body.EndObject()
}

// rawBlock writes a block of this format that was kept as it came.
func (e *encoder) rawBlock(document string, marked bool) {
	if !marked {
		e.Body.Raw(document)
		return
	}
	open := strings.TrimSuffix(strings.TrimSpace(document), "}")
	e.Body.Raw(open + `,"cache_control":` + e.cacheControl() + "}")
}

func (e *encoder) textBlock(text string) {
	e.Body.TextMember("type", "text")
	e.Body.TextMember("text", text)
}

func (e *encoder) call(call *toolv1.ToolCall) {
	e.Body.TextMember("type", "tool_use")
	e.Body.TextMember("id", e.callID(call.GetId()))
	if call.GetFunction() == e.Toolset && e.Toolset != "" {
		if action, input, ok := computer.ActionOf(call); ok {
			e.Body.TextMember("name", action)
			e.Body.TextMember("toolset_name", e.Toolset)
			e.Body.RawMember("input", input)
			return
		}
	}
	e.Body.TextMember("name", call.GetFunction())
	e.Body.RawMember("input", dialect.ArgumentsOf(call))
}

// result writes a tool's result: its content, or its error.
func (e *encoder) result(m *modelv1.ChatMessage) {
	e.Body.TextMember("type", "tool_result")
	e.Body.TextMember("tool_use_id", e.callID(chat.CallID(m)))
	if m.GetFunction() == e.Toolset {
		e.Body.TextUnlessEmpty("toolset_name", e.Toolset)
	}
	if failure := m.GetError(); failure != nil {
		e.Body.TextMember("content", failureText(m))
		e.Body.BoolMember("is_error", true)
		return
	}
	e.Body.Key("content")
	if m.GetContent().GetList() == nil {
		e.blocks([]block{{text: cmp.Or(m.GetContent().GetText(), noContent)}})
	} else {
		parts := orNoContent(partBlocks(m.GetContent()))
		for i := range parts {
			parts[i].marked, parts[i].inResult = false, true // the result is marked as a whole
		}
		e.blocks(parts)
	}
	e.Body.BoolMember("is_error", false)
}

// failureText is the message of a failed call; if it is empty, the tool's output.
func failureText(m *modelv1.ChatMessage) string {
	given := chat.Text(m)
	if list := m.GetContent().GetList(); list != nil && len(list.GetParts()) == 0 {
		given = noContent
	}
	return cmp.Or(m.GetError().GetMessage(), given, "error")
}

// part writes the members of a part that is one block.
func (e *encoder) part(b *block) {
	part := b.part
	switch p := part.GetPart().(type) {
	case *contentv1.Content_Text:
		text := cmp.Or(p.Text.GetText(), noContent)
		if internal := part.GetInternalJson(); internal != "" {
			text += "\n" + dialect.WrapInternal(internal)
		}
		e.textBlock(text)
		if cited := p.Text.GetCitations(); len(cited) > 0 && !b.inResult {
			e.Body.Key("citations")
			citation.WriteAnthropic(e.Body, cited)
		}
	case *contentv1.Content_Reasoning:
		e.reasoning(p.Reasoning)
	case *contentv1.Content_Image:
		e.Body.TextMember("type", "image")
		e.Body.Key("source")
		e.mediaSource(p.Image.GetMedia().GetUri())
	case *contentv1.Content_Document:
		e.document(p.Document)
	}
}

// reasoning writes the model's reasoning. Sealed reasoning goes back unchanged; open reasoning is another model's and
// becomes a text.
func (e *encoder) reasoning(r *contentv1.Reasoning) {
	switch {
	case r.GetRedacted() && r.Summary != nil:
		e.Body.TextMember("type", "thinking")
		e.Body.TextMember("thinking", r.GetSummary())
		e.Body.TextMember("signature", r.GetReasoning())
	case r.GetRedacted():
		e.Body.TextMember("type", "redacted_thinking")
		e.Body.TextMember("data", *cmp.Or(r.Signature, &r.Reasoning))
	default:
		e.textBlock("<think>" + r.GetReasoning() + "</think>")
	}
}

// isThinking reports whether reasoning goes back as thinking, not as a text.
func isThinking(r *contentv1.Reasoning) bool { return r.GetRedacted() }

// mediaSource writes where an image or a document is: its data, or its address.
func (e *encoder) mediaSource(uri string) {
	if mediaType, data, inline := dialect.SplitDataURI(uri); inline {
		e.Body.TextObject("type", "base64", "media_type", strings.Replace(mediaType, "image/jpg", "image/jpeg", 1), "data", data)
	} else {
		e.Body.TextObject("type", "url", "url", uri)
	}
}

// document writes a document. Any document but a PDF is plain text to the server.
func (e *encoder) document(d *contentv1.Document) {
	uri := d.GetMedia().GetUri()
	e.Body.TextMember("type", "document")
	e.Body.Key("source")
	mediaType, data, inline := dialect.SplitDataURI(uri)
	if !inline || mediaType == pdf {
		e.mediaSource(uri)
	} else {
		e.Body.TextObject("type", "text", "media_type", "text/plain", "data", plainData(uri, data))
	}
	e.Body.TextUnlessEmpty("title", cmp.Or(d.GetFilename(), documentName(mediaType)))
	if e.cites {
		e.Body.RawMember("citations", `{"enabled":true}`)
	}
}

const pdf = "application/pdf"

// documentName is the name of a document that has none: one after its media type.
func documentName(mediaType string) string {
	_, subtype, ok := strings.Cut(mediaType, "/")
	if !ok {
		return ""
	}
	return "document." + subtype
}

// plainData returns the data of a data URI as text.
func plainData(uri, data string) string {
	head, _, _ := strings.Cut(uri, ",")
	if !strings.HasSuffix(head, ";base64") {
		return data
	}
	decoded, err := base64.StdEncoding.DecodeString(data)
	if err != nil {
		return data
	}
	return strings.ToValidUTF8(string(decoded), "\uFFFD")
}
