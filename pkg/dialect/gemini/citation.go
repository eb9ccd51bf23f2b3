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

// segment is a range of bytes of a text.
type segment struct {
	Start int    `json:"startIndex"`
	End   int    `json:"endIndex"`
	Text  string `json:"text"`
}

// cite adds the citations to the texts that they are about. A support that fits no text is left out.
func (g *grounding) cite(parts []*contentv1.Content) {
	if g == nil {
		return
	}
	for _, support := range g.Supports {
		text, cited := support.Segment.in(parts)
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

// in finds the text that has the segment, and its range of characters.
func (s *segment) in(parts []*contentv1.Content) (*contentv1.Text, *contentv1.Range) {
	if s.Start < 0 || s.Start > s.End {
		return nil, nil
	}
	for _, part := range parts {
		text := part.GetText()
		whole := text.GetText()
		if text == nil || s.End > len(whole) || s.Text != "" && whole[s.Start:s.End] != s.Text {
			continue
		}
		start := int64(utf8.RuneCountInString(whole[:s.Start]))
		return text, &contentv1.Range{Start: start, End: start + int64(utf8.RuneCountInString(whole[s.Start:s.End]))}
	}
	return nil, nil
}
