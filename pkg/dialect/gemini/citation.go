package gemini

import (
	"unicode/utf8"

	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
)

// grounding are the pages on which an answer is grounded.
type grounding struct {
	Chunks []struct {
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

// cite adds the citations to the texts that they are about. A support that fits no text is left out. at are the places
// of the parts on the wire.
func (g *grounding) cite(parts []*contentv1.Content, at []int) {
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
