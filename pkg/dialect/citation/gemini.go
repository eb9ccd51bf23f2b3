package citation

import (
	"unicode/utf8"

	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
)

// Grounding are the pages on which an answer is grounded.
type Grounding struct {
	Queries []string `json:"webSearchQueries"`
	Chunks  []struct {
		Web *struct {
			URI   string `json:"uri"`
			Title string `json:"title"`
		} `json:"web"`
	} `json:"groundingChunks"`
	Supports []struct {
		Segment segment `json:"segment"`
		Chunks  []int   `json:"groundingChunkIndices"`
	} `json:"groundingSupports"`
}

// segment is a range of bytes of a text: of the part with an index, if it has one.
type segment struct {
	Part  *int   `json:"partIndex"`
	Start int    `json:"startIndex"`
	End   int    `json:"endIndex"`
	Text  string `json:"text"`
}

// maxCiting bounds the bytes and parts that are searched for the supports of an answer.
const maxCiting = 1 << 28

// Cite adds the citations to the texts that they are about. A support that fits no text is left out. at are the places
// of the parts on the wire.
func (g *Grounding) Cite(parts []*contentv1.Content, at []int) {
	if g == nil {
		return
	}
	left := maxCiting
	for _, support := range g.Supports {
		var text *contentv1.Text
		var cited *contentv1.Range
		if p := support.Segment.Part; p != nil && *p >= 0 && *p < len(at) && at[*p] < len(parts) {
			text, cited = support.Segment.in(parts[at[*p]:at[*p]+1], &left)
		}
		if text == nil {
			text, cited = support.Segment.in(parts, &left)
		}
		if text == nil {
			continue
		}
		for _, at := range support.Chunks {
			if at < 0 || at >= len(g.Chunks) || g.Chunks[at].Web == nil {
				continue
			}
			page := g.Chunks[at].Web
			text.Citations = append(text.Citations, &contentv1.Citation{
				Cited: &contentv1.Citation_CitedRange{CitedRange: cited}, Title: &page.Title, Source: &contentv1.Citation_Url{Url: page.URI},
			})
		}
	}
}

// in finds the first text that can have the segment, and its range of characters.
func (s *segment) in(parts []*contentv1.Content, left *int) (*contentv1.Text, *contentv1.Range) {
	if s.Start < 0 || s.Start > s.End {
		return nil, nil
	}
	for _, part := range parts {
		if *left--; *left < s.End {
			return nil, nil
		}
		text := part.GetText()
		whole := text.GetText()
		if text == nil || s.End > len(whole) {
			continue
		}
		*left -= s.End
		if s.Text != "" && whole[s.Start:s.End] != s.Text {
			continue
		}
		start := int64(utf8.RuneCountInString(whole[:s.Start]))
		return text, &contentv1.Range{Start: start, End: start + int64(utf8.RuneCountInString(whole[s.Start:s.End]))}
	}
	return nil, nil
}

// WriteGrounding writes the member groundingMetadata of a candidate that searched for these queries, found these pages
// and says these texts, at their places among its parts: nothing if nothing was searched for and nothing is cited.
func WriteGrounding(w *jsonwrite.Writer, queries []string, found []Source, texts []*contentv1.Text, at []int) {
	g := &written{places: map[string]int{}}
	for _, source := range found {
		g.chunk(source)
	}
	type support struct {
		page page
		text string
		part int
	}
	var supports []support
	for i, text := range texts {
		for _, p := range pages(text) {
			g.chunk(Source{URL: p.url, Title: p.title})
			supports = append(supports, support{p, text.GetText(), at[i]})
		}
	}
	if len(queries) == 0 && len(g.chunks) == 0 {
		return
	}
	w.BeginObjectMember("groundingMetadata")
	if len(queries) > 0 {
		w.TextList("webSearchQueries", queries)
	}
	w.Key("groundingChunks")
	for _, source := range jsonwrite.Objects(w, g.chunks) {
		w.TextObjectMember("web", "uri", source.URL, "title", source.Title)
	}
	left := maxSegments
	w.Key("groundingSupports")
	for _, s := range jsonwrite.Objects(w, supports) {
		start, end := byteOf(s.text, s.page.start), byteOf(s.text, s.page.end)
		w.BeginObjectMember("segment")
		if s.part > 0 {
			w.IntMember("partIndex", int64(s.part))
		}
		w.IntMember("startIndex", int64(start))
		w.IntMember("endIndex", int64(end))
		if left -= end - start; left >= 0 {
			w.TextMember("text", s.text[start:end])
		}
		w.EndObject()
		w.BeginListMember("groundingChunkIndices")
		w.Int(int64(g.places[s.page.url]))
		w.EndList()
	}
	w.EndObject()
}

// maxSegments bounds the bytes of the segments of a grounding that are repeated, since each may be all of a text.
const maxSegments = 1 << 20

// Sources are the pages that were found.
func (g *Grounding) Sources() []Source {
	found := []Source{}
	for _, chunk := range g.Chunks {
		if chunk.Web != nil {
			found = append(found, Source{URL: chunk.Web.URI, Title: chunk.Web.Title})
		}
	}
	return found
}

// Source is a page that was found.
type Source struct {
	URL   string `json:"url"`
	Title string `json:"title"`
}

// written are the pages of a grounding, each once.
type written struct {
	chunks []Source
	places map[string]int
}

func (g *written) chunk(source Source) {
	if _, there := g.places[source.URL]; !there {
		g.places[source.URL] = len(g.chunks)
		g.chunks = append(g.chunks, source)
	}
}
