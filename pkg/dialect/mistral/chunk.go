package mistral

import (
	"cmp"

	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/enum"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
)

// WriteText writes a text as a chunk.
func WriteText(w *jsonwrite.Writer, text string) {
	w.TextObject("type", chunkText, "text", text)
}

// WriteThinking writes reasoning as a chunk.
func WriteThinking(w *jsonwrite.Writer, thought string) {
	w.BeginObject()
	w.TextMember("type", chunkThinking)
	w.BeginListMember("thinking")
	WriteText(w, thought)
	w.EndList()
	w.EndObject()
}

// WriteImage writes an image as a chunk.
func WriteImage(w *jsonwrite.Writer, image *contentv1.Image) {
	detail := image.GetDetail()
	if detail == contentv1.ImageDetail_IMAGE_DETAIL_ORIGINAL { // the format knows nothing closer
		detail = contentv1.ImageDetail_IMAGE_DETAIL_HIGH
	}
	w.BeginObject()
	w.TextMember("type", chunkImage)
	w.TextObjectMember("image_url", "url", image.GetMedia().GetUri(), "detail", cmp.Or(enum.Word(detail), "auto"))
	w.EndObject()
}

// WriteDocument writes a document as a chunk.
func WriteDocument(w *jsonwrite.Writer, document *contentv1.Document) {
	w.TextObject("type", chunkDocument, "document_url", document.GetMedia().GetUri(), "document_name", document.GetFilename())
}

// WriteReferences writes those sources of a text that have an address, as chunks.
func WriteReferences(w *jsonwrite.Writer, citations []*contentv1.Citation) {
	for _, citation := range citations {
		if citation.GetUrl() != "" {
			WriteReference(w, citation)
		}
	}
}

// WriteReference writes a source of a text as a chunk.
func WriteReference(w *jsonwrite.Writer, citation *contentv1.Citation) {
	w.BeginObject()
	w.TextMember("type", chunkReference)
	w.TextMember("tool", "web_search")
	w.TextMember("title", citation.GetTitle())
	w.TextMember("url", citation.GetUrl())
	w.TextUnlessEmpty("description", citation.GetCitedText())
	w.EndObject()
}

// WritePart writes a part of a request as a chunk: a text, reasoning or an image. ok is false, and nothing is written,
// for a part of another kind. Sealed reasoning goes as it is: the format has no place for seals.
func WritePart(w *jsonwrite.Writer, part *contentv1.Content) (ok bool) {
	switch p := part.GetPart().(type) {
	case *contentv1.Content_Text:
		WriteText(w, cmp.Or(p.Text.GetText(), dialect.NoContent))
	case *contentv1.Content_Reasoning:
		WriteThinking(w, p.Reasoning.GetReasoning())
	case *contentv1.Content_Image:
		WriteImage(w, p.Image)
	default:
		return false
	}
	return true
}

// WriteAnswer writes a part of an answer as a chunk: a text, the readable form of reasoning, or an image. Parts of
// other kinds, and reasoning without a readable form, have none.
func WriteAnswer(w *jsonwrite.Writer, part *contentv1.Content) {
	switch p := part.GetPart().(type) {
	case *contentv1.Content_Text:
		WriteText(w, p.Text.GetText())
	case *contentv1.Content_Reasoning:
		if thought := Readable(part); thought != "" {
			WriteThinking(w, thought)
		}
	case *contentv1.Content_Image:
		WriteImage(w, p.Image)
	}
}

// Readable is the readable text of reasoning.
func Readable(part *contentv1.Content) string {
	r := part.GetReasoning()
	if r.GetRedacted() {
		return r.GetSummary()
	}
	return r.GetReasoning()
}
