package chat

import (
	"cmp"

	"github.com/evalfleet/evalfleet/pkg/enum"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
)

func writeContent(w *jsonwrite.Writer, c *contentv1.MessageContent) {
	list := c.GetList()
	if list == nil {
		w.Text(c.GetText())
		return
	}
	w.BeginList()
	for _, part := range list.GetParts() {
		writePart(w, part)
	}
	w.EndList()
}

func writePart(w *jsonwrite.Writer, part *contentv1.Content) {
	w.BeginObject()
	w.RawUnlessEmpty("internal", withSealer(part))
	switch p := part.GetPart().(type) {
	case *contentv1.Content_Text:
		w.TextMember("type", "text")
		w.TextMember("text", p.Text.GetText())
		w.OptBool("refusal", p.Text.Refusal)
		writeCitations(w, p.Text.GetCitations())
		w.OptBool("cache_breakpoint", p.Text.CacheBreakpoint)
	case *contentv1.Content_Reasoning:
		w.TextMember("type", "reasoning")
		w.TextMember("reasoning", p.Reasoning.GetReasoning())
		w.OptText("summary", p.Reasoning.Summary)
		w.OptText("signature", p.Reasoning.Signature)
		w.BoolMember("redacted", p.Reasoning.GetRedacted())
	case *contentv1.Content_Image:
		w.TextMember("type", "image")
		w.TextMember("image", mediaURI(p.Image.GetMedia()))
		w.TextMember("detail", cmp.Or(enum.Word(p.Image.GetDetail()), "auto"))
	case *contentv1.Content_Audio:
		w.TextMember("type", "audio")
		w.TextMember("audio", mediaURI(p.Audio.GetMedia()))
		w.TextMember("format", enum.Word(p.Audio.GetFormat()))
	case *contentv1.Content_Video:
		w.TextMember("type", "video")
		w.TextMember("video", mediaURI(p.Video.GetMedia()))
		w.TextMember("format", enum.Word(p.Video.GetFormat()))
	case *contentv1.Content_Document:
		uri := mediaURI(p.Document.GetMedia())
		filename, mimeType := describeDocument(uri)
		w.TextMember("type", "document")
		w.TextMember("document", uri)
		w.TextMember("filename", cmp.Or(p.Document.GetFilename(), filename))
		w.TextMember("mime_type", cmp.Or(p.Document.GetMimeType(), mimeType))
		w.BoolMember("citations", p.Document.GetCitations())
	case *contentv1.Content_ToolUse:
		w.TextMember("type", "tool_use")
		w.TextMember("tool_type", enum.Word(p.ToolUse.GetToolType()))
		w.TextMember("id", p.ToolUse.GetId())
		w.TextMember("name", p.ToolUse.GetName())
		w.OptText("context", p.ToolUse.Context)
		w.TextMember("arguments", p.ToolUse.GetArguments())
		w.TextMember("result", p.ToolUse.GetResult())
		w.OptText("error", p.ToolUse.Error)
	default: // data, or a part that a newer peer sent: it has no other form here
		w.TextMember("type", "data")
		w.RawMember("data", cmp.Or(part.GetData().GetJson(), "{}"))
	}
	w.EndObject()
}

func writeCitations(w *jsonwrite.Writer, citations []*contentv1.Citation) {
	if len(citations) == 0 {
		return
	}
	w.Key("citations")
	w.BeginList()
	for _, c := range citations {
		writeCitation(w, c)
	}
	w.EndList()
}

func writeCitation(w *jsonwrite.Writer, c *contentv1.Citation) {
	w.BeginObject()
	switch cited := c.GetCited().(type) {
	case *contentv1.Citation_CitedText:
		w.TextMember("cited_text", cited.CitedText)
	case *contentv1.Citation_CitedRange:
		w.Key("cited_text")
		w.BeginList()
		w.Int(cited.CitedRange.GetStart())
		w.Int(cited.CitedRange.GetEnd())
		w.EndList()
	}
	w.OptText("title", c.Title)
	w.RawUnlessEmpty("internal", c.GetInternalJson())
	switch source := c.GetSource().(type) {
	case *contentv1.Citation_Url:
		w.TextMember("type", "url")
		w.TextMember("url", source.Url)
	case *contentv1.Citation_Document:
		w.TextMember("type", "document")
		if r := source.Document; r.GetType() != 0 {
			w.Key("range")
			w.BeginObject()
			w.TextMember("type", enum.Word(r.GetType()))
			w.IntMember("start_index", r.GetStartIndex())
			w.IntMember("end_index", r.GetEndIndex())
			w.EndObject()
		}
	default:
		w.TextMember("type", "content")
	}
	w.EndObject()
}

// mediaURI returns the location of media in the JSON form.
func mediaURI(m *contentv1.Media) string {
	if blob := m.GetBlob(); blob != nil {
		return blobScheme + blob.GetHash()
	}
	return m.GetUri()
}
