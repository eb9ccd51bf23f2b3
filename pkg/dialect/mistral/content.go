package mistral

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/enum"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonread"
)

// Types of chunks.
const (
	chunkText      = "text"
	chunkThinking  = "thinking"
	chunkImage     = "image_url"
	chunkDocument  = "document_url"
	chunkFile      = "file"
	chunkToolFile  = "tool_file"
	chunkReference = "tool_reference"
)

// Content is the content of a message on the wire: a text, or a list of chunks; a piece of a stream may be a single
// chunk. The zero value is content that is not there.
type Content struct {
	// Text is the text, if IsText.
	Text   string
	IsText bool
	Chunks []Chunk
}

// Chunk is a part of content on the wire.
type Chunk struct {
	Type         string   `json:"type"`
	Text         string   `json:"text"`
	Thinking     []Chunk  `json:"thinking"`
	ImageURL     imageURL `json:"image_url"`
	DocumentURL  string   `json:"document_url"`
	DocumentName string   `json:"document_name"`
	FileID       string   `json:"file_id"`
	// The rest is of a source that a tool of the server found.
	Title       string  `json:"title"`
	URL         string  `json:"url"`
	Description *string `json:"description"`
}

// imageURL is the address of an image, with or without its detail.
type imageURL struct{ url, detail string }

// TakeText implements jsonread.TextTaker.
func (u *imageURL) TakeText(text string) { *u = imageURL{url: text} }

// UnmarshalJSON reads a text or an object.
func (u *imageURL) UnmarshalJSON(raw []byte) error {
	if raw[0] == '"' {
		return json.Unmarshal(raw, &u.url)
	}
	var object struct {
		URL    string `json:"url"`
		Detail string `json:"detail"`
	}
	if err := json.Unmarshal(raw, &object); err != nil {
		return err
	}
	*u = imageURL{object.URL, object.Detail}
	return nil
}

// TakeText implements jsonread.TextTaker.
func (c *Content) TakeText(text string) { *c = Content{Text: text, IsText: true} }

// UnmarshalJSON reads a text, a list of chunks, or a single chunk; null is no content.
func (c *Content) UnmarshalJSON(raw []byte) error {
	switch raw[0] {
	case '"':
		var text string
		err := json.Unmarshal(raw, &text)
		c.TakeText(text)
		return err
	case '[':
		*c = Content{}
		return jsonread.Unmarshal(raw, &c.Chunks)
	case '{':
		*c = Content{Chunks: make([]Chunk, 1)}
		return jsonread.Unmarshal(raw, &c.Chunks[0])
	case 'n':
		*c = Content{}
		return nil
	default:
		return errors.New("content is neither a text nor a list of chunks")
	}
}

// Absent reports whether there is no content.
func (c Content) Absent() bool { return !c.IsText && c.Chunks == nil }

// Parts returns the content of an answer. tags means that text between think tags in a chunk is reasoning. Files and
// images that the server stores are named in a text: they are not fetched. Chunks of unknown types are left out.
func (c Content) Parts(tags bool) []*contentv1.Content {
	if c.IsText {
		return []*contentv1.Content{chat.TextPart(c.Text)}
	}
	parts := make([]*contentv1.Content, 0, len(c.Chunks))
	var cited *contentv1.Text // the text that the following sources are about
	for i := range c.Chunks {
		chunk := &c.Chunks[i]
		if chunk.Type == chunkReference {
			chunk.cite(cited)
			continue
		}
		cited = nil
		switch chunk.Type {
		case chunkText:
			if thought, rest, tagged := dialect.CutThink(chunk.Text); tags && tagged {
				parts = append(parts, chat.ReasoningPart(thought), chat.TextPart(rest))
			} else {
				parts = append(parts, chat.TextPart(chunk.Text))
			}
			cited = parts[len(parts)-1].GetText()
		case chunkThinking:
			parts = append(parts, chat.ReasoningPart(chunk.thought("\n")))
		case chunkImage:
			parts = append(parts, chunk.image())
		case chunkDocument:
			parts = append(parts, chat.TextPart(chunk.DocumentURL))
		case chunkFile, chunkToolFile:
			parts = append(parts, chat.TextPart("file: "+chunk.FileID))
		}
	}
	return parts
}

// thought returns the texts of a thinking chunk.
func (c *Chunk) thought(separator string) string {
	texts := make([]string, 0, len(c.Thinking))
	for i := range c.Thinking {
		if c.Thinking[i].Type == chunkText {
			texts = append(texts, c.Thinking[i].Text)
		}
	}
	return strings.Join(texts, separator)
}

// cite adds the source that a chunk names to a text; nil is none.
func (c *Chunk) cite(text *contentv1.Text) {
	if text == nil {
		return
	}
	citation := &contentv1.Citation{Title: &c.Title, Source: &contentv1.Citation_Url{Url: c.URL}}
	if c.Description != nil {
		citation.Cited = &contentv1.Citation_CitedText{CitedText: *c.Description}
	}
	text.Citations = append(text.Citations, citation)
}

// image is an image that is within the answer; of any other only the address is kept, as a text, since a viewer would
// fetch what a model wrote.
func (c *Chunk) image() *contentv1.Content {
	if dialect.CheckInline("", c.ImageURL.url) != nil {
		return chat.TextPart("image that was not fetched: " + c.ImageURL.url)
	}
	image, ok := c.ImageURL.part()
	if !ok {
		image.GetImage().Detail = contentv1.ImageDetail_IMAGE_DETAIL_AUTO
	}
	return image
}

// part is the image; ok is false if its detail is unknown.
func (u *imageURL) part() (image *contentv1.Content, ok bool) {
	image = chat.ImagePart(u.url)
	image.GetImage().Detail, ok = enum.Parse[contentv1.ImageDetail](cmp.Or(u.detail, "auto"))
	return image, ok
}

// Read returns the content of a client's message. param is where it is.
func (c Content) Read(param string) (*contentv1.MessageContent, error) {
	if c.IsText {
		return chat.TextContent(c.Text), nil
	}
	parts := make([]*contentv1.Content, 0, len(c.Chunks))
	var cited *contentv1.Text // the text that the following sources are about
	for i := range c.Chunks {
		if chunk := &c.Chunks[i]; chunk.Type == chunkReference {
			chunk.cite(cited)
			continue
		}
		part, err := c.Chunks[i].read(fmt.Sprintf("%s[%d]", param, i))
		if err != nil {
			return nil, err
		}
		parts, cited = append(parts, part), part.GetText()
	}
	return chat.ListContent(parts...), nil
}

func (c *Chunk) read(param string) (*contentv1.Content, error) {
	switch c.Type {
	case chunkText:
		return chat.TextPart(c.Text), nil
	case chunkThinking:
		return chat.ReasoningPart(c.thought("\n")), nil
	case chunkImage:
		if c.ImageURL.url == "" {
			return nil, dialect.Required(param + ".image_url")
		}
		if err := dialect.CheckInline(param+".image_url", c.ImageURL.url); err != nil {
			return nil, err
		}
		image, ok := c.ImageURL.part()
		if !ok {
			return nil, dialect.Invalid(param+".image_url.detail", "%q is none of auto, low, high", c.ImageURL.detail)
		}
		return image, nil
	case chunkDocument:
		if err := dialect.CheckInline(param+".document_url", c.DocumentURL); err != nil {
			return nil, err
		}
		mediaType, _, _ := dialect.SplitDataURI(c.DocumentURL)
		media := &contentv1.Media{Source: &contentv1.Media_Uri{Uri: c.DocumentURL}}
		return &contentv1.Content{Part: &contentv1.Content_Document{Document: &contentv1.Document{Media: media, Filename: c.DocumentName, MimeType: mediaType}}}, nil
	default:
		return nil, dialect.NotSupported(param+".type", "%q is not supported here; text, thinking, image_url and document_url are", c.Type)
	}
}
