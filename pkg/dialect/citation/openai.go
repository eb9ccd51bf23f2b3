package citation

import (
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
)

// Annotation is a source of a text: a page, by the range of the text that it is about, or a file.
type Annotation struct {
	Type   string  `json:"type"`
	URL    string  `json:"url"`
	Title  *string `json:"title"`
	Start  int64   `json:"start_index"`
	End    int64   `json:"end_index"`
	FileID string  `json:"file_id"`
	Index  int64   `json:"index"`
}

// OpenAI are the citations that annotations are. Those of kinds that are not known are none.
func OpenAI(annotations []Annotation) (all []*contentv1.Citation) {
	for i := range annotations {
		if cited := annotations[i].message(); cited != nil {
			all = append(all, cited)
		}
	}
	return all
}

// message returns the citation; nil for a kind that is not known.
func (a *Annotation) message() *contentv1.Citation {
	switch a.Type {
	case urlCitation:
		return &contentv1.Citation{
			Cited: &contentv1.Citation_CitedRange{CitedRange: &contentv1.Range{Start: a.Start, End: a.End}}, Title: a.Title,
			Source: &contentv1.Citation_Url{Url: a.URL},
		}
	case "file_citation", "file_path":
		place := struct {
			FileID string `json:"file_id"`
			Index  int64  `json:"index"`
		}{a.FileID, a.Index}
		return &contentv1.Citation{
			InternalJson: string(jsonwrite.Marshal(place)), Source: &contentv1.Citation_Document{Document: &contentv1.DocumentRange{}},
		}
	default:
		return nil
	}
}

// OpenAIOf are the annotations of a text that begins so many characters after the beginning of its part: the pages that
// it cites, whichever vendor's model did.
func OpenAIOf(text *contentv1.Text, offset int64) (all []Annotation) {
	for _, p := range pages(text) {
		all = append(all, Annotation{Type: urlCitation, URL: p.url, Title: &p.title, Start: offset + p.start, End: offset + p.end})
	}
	return all
}

// Write writes the annotation.
func (a *Annotation) Write(w *jsonwrite.Writer) {
	w.BeginObject()
	w.TextMember("type", a.Type)
	a.members(w)
	w.EndObject()
}

func (a *Annotation) members(w *jsonwrite.Writer) {
	w.IntMember("start_index", a.Start)
	w.IntMember("end_index", a.End)
	w.TextMember("url", a.URL)
	w.TextMember("title", *a.Title)
}

// WriteChat writes the annotation as chat completions have it, within a member of its own.
func (a *Annotation) WriteChat(w *jsonwrite.Writer) {
	w.BeginObject()
	w.TextMember("type", a.Type)
	w.BeginObjectMember(a.Type)
	a.members(w)
	w.EndObject()
	w.EndObject()
}

// urlCitation is the type of the citation of a page.
const urlCitation = "url_citation"
