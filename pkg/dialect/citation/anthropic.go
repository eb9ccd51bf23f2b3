package citation

import (
	"encoding/json"
	"slices"

	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonedit"
	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
)

// location is where a citation points to, on the wire. Blocks and characters count from 0, pages from 1.
type location struct {
	Type           string  `json:"type"`
	CitedText      string  `json:"cited_text"`
	URL            string  `json:"url"`
	Title          *string `json:"title"`
	Source         string  `json:"source"`
	EncryptedIndex string  `json:"encrypted_index"`
	DocumentIndex  int64   `json:"document_index"`
	DocumentTitle  *string `json:"document_title"`
	StartChar      int64   `json:"start_char_index"`
	EndChar        int64   `json:"end_char_index"`
	StartPage      int64   `json:"start_page_number"`
	EndPage        int64   `json:"end_page_number"`
	StartBlock     int64   `json:"start_block_index"`
	EndBlock       int64   `json:"end_block_index"`
}

// citationState is the data that restores a citation: how the server finds the source again.
type citationState struct {
	EncryptedIndex string `json:"encrypted_index,omitempty"`
	DocumentIndex  *int64 `json:"document_index,omitempty"`
}

// ranges are the kinds of ranges of a document: the type of the location, and the members of its bounds. from is the
// first number of the kind, which is 0 in the canonical form.
var ranges = map[contentv1.DocumentRangeType]struct {
	location, start, end string
	from                 int64
	bounds               func(*location) (start, end int64)
}{
	contentv1.DocumentRangeType_DOCUMENT_RANGE_TYPE_CHAR: {
		"char_location", "start_char_index", "end_char_index", 0, func(l *location) (int64, int64) { return l.StartChar, l.EndChar },
	},
	contentv1.DocumentRangeType_DOCUMENT_RANGE_TYPE_PAGE: {
		"page_location", "start_page_number", "end_page_number", 1, func(l *location) (int64, int64) { return l.StartPage, l.EndPage },
	},
	contentv1.DocumentRangeType_DOCUMENT_RANGE_TYPE_BLOCK: {
		"content_block_location", "start_block_index", "end_block_index", 0, func(l *location) (int64, int64) { return l.StartBlock, l.EndBlock },
	},
}

const searchLocation = "web_search_result_location"

// Anthropic reads the member citations of a text of Anthropic's format; another document has none.
func Anthropic(document json.RawMessage) (all []*contentv1.Citation) {
	var locations []location
	if json.Unmarshal(document, &locations) == nil {
		for i := range locations {
			all = append(all, locations[i].message())
		}
	}
	return all
}

// message returns the citation. One of a kind that is not known keeps its text and title.
func (l *location) message() *contentv1.Citation {
	c := &contentv1.Citation{Title: l.Title, Cited: &contentv1.Citation_CitedText{CitedText: l.CitedText}}
	if l.Type == searchLocation {
		if c.Source = (&contentv1.Citation_Url{Url: l.URL}); !isOurs(l.EncryptedIndex) {
			c.InternalJson = string(jsonwrite.Marshal(citationState{EncryptedIndex: l.EncryptedIndex}))
		}
	}
	for kind, of := range ranges {
		if of.location == l.Type {
			start, end := of.bounds(l)
			c.Title, c.InternalJson = l.DocumentTitle, string(jsonwrite.Marshal(citationState{DocumentIndex: &l.DocumentIndex}))
			c.Source = &contentv1.Citation_Document{Document: &contentv1.DocumentRange{Type: kind, StartIndex: start - of.from, EndIndex: end - of.from}}
		}
	}
	return c
}

// WriteAnthropic writes the citations of a text as Anthropic takes them, a list. Those of other vendors have no place
// in the format and are omitted.
func WriteAnthropic(w *jsonwrite.Writer, citations []*contentv1.Citation) {
	for _, c := range jsonwrite.List(w, citations) {
		var state citationState
		_ = json.Unmarshal([]byte(c.GetInternalJson()), &state)
		r := c.GetDocument()
		switch of := ranges[r.GetType()]; {
		case c.GetUrl() != "" && state.EncryptedIndex != "":
			w.BeginObject()
			w.TextMember("type", searchLocation)
			w.TextMember("cited_text", c.GetCitedText())
			w.OptText("title", c.Title)
			w.TextMember("url", c.GetUrl())
			w.TextMember("encrypted_index", state.EncryptedIndex)
			w.EndObject()
		case r.GetType() != 0 && state.DocumentIndex != nil:
			w.BeginObject()
			w.TextMember("type", of.location)
			w.TextMember("cited_text", c.GetCitedText())
			w.IntMember("document_index", *state.DocumentIndex)
			w.OptText("document_title", c.Title)
			w.IntMember(of.start, r.GetStartIndex()+of.from)
			w.IntMember(of.end, r.GetEndIndex()+of.from)
			w.EndObject()
		}
	}
}

// ForAnthropic are citations as clients of Anthropic's format get them: pages that another vendor cites too. The seal
// of such a page says that it is none of Anthropic's ([Reopen]).
func ForAnthropic(citations []*contentv1.Citation) []*contentv1.Citation {
	all := slices.Clone(citations)
	for i, c := range all {
		var state citationState
		_ = json.Unmarshal([]byte(c.GetInternalJson()), &state)
		if c.GetUrl() != "" && state.EncryptedIndex == "" {
			all[i] = &contentv1.Citation{
				InternalJson: string(jsonwrite.Marshal(citationState{EncryptedIndex: ours})), Title: c.Title, Source: &contentv1.Citation_Url{Url: c.GetUrl()},
				Cited: &contentv1.Citation_CitedText{CitedText: c.GetCitedText()},
			}
		}
	}
	return all
}

// Reopen returns a text of a client's request without the citations that ForAnthropic has made, which Anthropic
// refuses.
func Reopen(block []byte) []byte {
	left := jsonedit.Member(block, "citations", func(list []byte) []byte {
		return jsonedit.List(list, func(citation []byte) []byte {
			var l location
			if json.Unmarshal(citation, &l) == nil && isOurs(l.EncryptedIndex) {
				return nil
			}
			return citation
		})
	})
	return left
}
