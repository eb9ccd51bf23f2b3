package mistral

import (
	"strings"

	"github.com/evalfleet/evalfleet/pkg/dialect"
)

// Growing collects content that arrives in pieces. Neighbouring pieces of a text, or of reasoning, with one index are
// one chunk. The zero value is empty.
type Growing struct {
	chunks []*growingChunk
	// chunked means that a piece was a chunk, so that the content is a list.
	chunked bool
}

type growingChunk struct {
	Chunk
	index int
	text  strings.Builder
}

// Add adds a piece with the index of its chunk, and what it is of the answer to pieces.
func (g *Growing) Add(c Content, index int, pieces *dialect.Pieces) {
	if c.IsText {
		c.Chunks = []Chunk{{Type: chunkText, Text: c.Text}}
	} else if len(c.Chunks) > 0 {
		g.chunked = true
	}
	for i := range c.Chunks {
		chunk := c.Chunks[i]
		switch chunk.Type {
		case chunkText:
			g.grow(chunkText, chunk.Text, index)
			pieces.Text(chunk.Text)
		case chunkThinking:
			thought := chunk.thought("")
			g.grow(chunkThinking, thought, index)
			pieces.Reasoning(thought)
		case chunkReference:
			g.chunks = append(g.chunks, &growingChunk{Chunk: chunk, index: index})
		default:
			g.chunks = append(g.chunks, &growingChunk{Chunk: chunk, index: index})
			for _, part := range (Content{Chunks: []Chunk{chunk}}).Parts(false) {
				pieces.Part(part)
			}
		}
	}
}

// grow adds a text to the last chunk, or to a new one.
func (g *Growing) grow(kind, text string, index int) {
	if text == "" {
		return
	}
	last := len(g.chunks) - 1
	if last < 0 || g.chunks[last].Type != kind || g.chunks[last].index != index {
		g.chunks = append(g.chunks, &growingChunk{Chunk: Chunk{Type: kind}, index: index})
		last++
	}
	g.chunks[last].text.WriteString(text)
}

// Content returns the content as far as it came.
func (g *Growing) Content() Content {
	var all []Chunk
	for _, chunk := range g.chunks {
		whole := chunk.Chunk
		switch whole.Type {
		case chunkText:
			whole.Text = chunk.text.String()
		case chunkThinking:
			whole.Thinking = []Chunk{{Type: chunkText, Text: chunk.text.String()}}
		}
		all = append(all, whole)
	}
	if !g.chunked && len(all) == 1 {
		return Content{Text: all[0].Text, IsText: true}
	}
	return Content{Chunks: all}
}
