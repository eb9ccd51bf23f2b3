package anthropic

import (
	"encoding/json"

	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
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

// message returns the citation. One of a kind that is not known keeps its text and title.
func (l *location) message() *contentv1.Citation {
	c := &contentv1.Citation{Title: l.Title, Cited: &contentv1.Citation_CitedText{CitedText: l.CitedText}}
	if l.Type == searchLocation {
		c.InternalJson, c.Source = string(jsonwrite.Marshal(citationState{EncryptedIndex: l.EncryptedIndex})), &contentv1.Citation_Url{Url: l.URL}
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

// cites reports whether any document of a conversation is to be cited. A tool's output beside a failure is not sent.
func cites(messages []*modelv1.ChatMessage) bool {
	for _, m := range messages {
		if m.GetError() != nil {
			continue
		}
		for _, part := range m.GetContent().GetList().GetParts() {
			if part.GetDocument().GetCitations() {
				return true
			}
		}
	}
	return false
}

// citations writes the citations of a text. Citations of other providers have no place in the format and are omitted.
func (e *encoder) citations(citations []*contentv1.Citation) {
	if len(citations) == 0 {
		return
	}
	e.Body.Key("citations")
	for _, c := range jsonwrite.List(e.Body, citations) {
		var state citationState
		_ = json.Unmarshal([]byte(c.GetInternalJson()), &state)
		r := c.GetDocument()
		switch of := ranges[r.GetType()]; {
		case c.GetUrl() != "" && state.EncryptedIndex != "":
			e.Body.BeginObject()
			e.Body.TextMember("type", searchLocation)
			e.Body.TextMember("cited_text", c.GetCitedText())
			e.Body.OptText("title", c.Title)
			e.Body.TextMember("url", c.GetUrl())
			e.Body.TextMember("encrypted_index", state.EncryptedIndex)
			e.Body.EndObject()
		case r.GetType() != 0 && state.DocumentIndex != nil:
			e.Body.BeginObject()
			e.Body.TextMember("type", of.location)
			e.Body.TextMember("cited_text", c.GetCitedText())
			e.Body.IntMember("document_index", *state.DocumentIndex)
			e.Body.OptText("document_title", c.Title)
			e.Body.IntMember(of.start, r.GetStartIndex()+of.from)
			e.Body.IntMember(of.end, r.GetEndIndex()+of.from)
			e.Body.EndObject()
		}
	}
}
