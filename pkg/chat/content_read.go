package chat

import (
	"encoding/json"
	"path"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/enum"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	"github.com/evalfleet/evalfleet/pkg/json/lenientjson"
)

// readContent reads the field `content`: a text or a list of parts.
func readContent(o *lenientjson.Object, field string) *contentv1.MessageContent {
	if !o.Require(field) {
		return nil
	}
	if text, ok := lenientjson.AsText(o.Raw(field)); ok {
		return TextContent(text)
	}
	objects, ok := o.Objects(field)
	if !ok {
		return nil
	}
	parts := make([]*contentv1.Content, 0, len(objects))
	for _, object := range objects {
		parts = append(parts, readPart(object))
	}
	return ListContent(parts...)
}

// partReaders reads the fields of each type of part. A part without a type is tried by its own field, in this order.
var partReaders = []struct {
	name  string
	field string
	read  func(*lenientjson.Object, *contentv1.Content)
}{
	{"text", "text", readText},
	{"reasoning", "reasoning", readReasoning},
	{"image", "image", readImage},
	{"audio", "audio", readAudio},
	{"video", "video", readVideo},
	{"data", "data", readData},
	{"tool_use", "tool_type", readToolUse},
	{"document", "document", readDocument},
}

func readPart(o *lenientjson.Object) *contentv1.Content {
	part := &contentv1.Content{InternalJson: o.Any("internal")}
	name, typed := "", o.Has("type")
	if typed {
		name = o.Text("type")
	}
	for _, reader := range partReaders {
		if (typed && reader.name == name) || (!typed && o.Has(reader.field)) {
			reader.read(o, part)
			return part
		}
	}
	if typed {
		o.Fail("type", "is no type of content: %q", name)
	} else {
		o.Fail("type", "is required")
	}
	return part
}

func readText(o *lenientjson.Object, part *contentv1.Content) {
	text := &contentv1.Text{
		Text:            o.RequireText("text"),
		Refusal:         o.Bool("refusal"),
		CacheBreakpoint: o.Bool("cache_breakpoint"),
	}
	citations, _ := o.Objects("citations")
	for _, citation := range citations {
		text.Citations = append(text.Citations, readCitation(citation))
	}
	part.Part = &contentv1.Content_Text{Text: text}
}

func readCitation(o *lenientjson.Object) *contentv1.Citation {
	c := &contentv1.Citation{InternalJson: o.RawObject("internal"), Title: o.String("title")}
	if raw := o.Raw("cited_text"); raw != nil {
		readCited(o, raw, c)
	}
	switch kind := o.RequireText("type"); kind {
	case "content":
	case "url":
		c.Source = &contentv1.Citation_Url{Url: o.RequireText("url")}
	case "document":
		document := &contentv1.DocumentRange{}
		if r := o.Object("range"); r != nil {
			r.Require("type")
			if t := readEnum[contentv1.DocumentRangeType](r, "type"); t != nil {
				document.Type = *t
			}
			document.StartIndex, document.EndIndex = requireInt(r, "start_index"), requireInt(r, "end_index")
		}
		c.Source = &contentv1.Citation_Document{Document: document}
	default:
		o.Fail("type", "is no type of citation: %q", kind)
	}
	return c
}

// readCited reads `cited_text`: the cited text, or the pair of its positions.
func readCited(o *lenientjson.Object, raw json.RawMessage, c *contentv1.Citation) {
	if text, ok := lenientjson.AsText(raw); ok {
		c.Cited = &contentv1.Citation_CitedText{CitedText: text}
		return
	}
	items, _ := o.List("cited_text")
	if len(items) == 2 {
		start, okStart := lenientjson.AsInt(items[0])
		end, okEnd := lenientjson.AsInt(items[1])
		if okStart && okEnd {
			c.Cited = &contentv1.Citation_CitedRange{CitedRange: &contentv1.Range{Start: start, End: end}}
			return
		}
	}
	o.Fail("cited_text", "must be a text or a pair of positions")
}

func requireInt(o *lenientjson.Object, name string) int64 {
	o.Require(name)
	if n := o.Int64(name); n != nil {
		return *n
	}
	return 0
}

func readReasoning(o *lenientjson.Object, part *contentv1.Content) {
	redacted := o.Bool("redacted")
	part.Part = &contentv1.Content_Reasoning{Reasoning: &contentv1.Reasoning{
		Reasoning: o.RequireText("reasoning"),
		Summary:   o.String("summary"),
		Signature: o.String("signature"),
		Redacted:  redacted != nil && *redacted,
	}}
	takeSealer(part)
}

func readImage(o *lenientjson.Object, part *contentv1.Content) {
	image := &contentv1.Image{Media: uriMedia(o.RequireText("image")), Detail: contentv1.ImageDetail_IMAGE_DETAIL_AUTO}
	if o.Has("detail") && o.Require("detail") {
		if detail := readEnum[contentv1.ImageDetail](o, "detail"); detail != nil {
			image.Detail = *detail
		}
	}
	part.Part = &contentv1.Content_Image{Image: image}
}

func readAudio(o *lenientjson.Object, part *contentv1.Content) {
	part.Part = &contentv1.Content_Audio{Audio: &contentv1.Audio{
		Media: uriMedia(o.RequireText("audio")), Format: requireEnum[contentv1.AudioFormat](o, "format"),
	}}
}

func readVideo(o *lenientjson.Object, part *contentv1.Content) {
	part.Part = &contentv1.Content_Video{Video: &contentv1.Video{
		Media: uriMedia(o.RequireText("video")), Format: requireEnum[contentv1.VideoFormat](o, "format"),
	}}
}

// readEnum reads the word of an enum's value; nil if there is none.
func readEnum[E enum.Enum](o *lenientjson.Object, name string) *E {
	var none E
	word := o.Enum(name, enum.Words(none.Descriptor())...)
	if word == nil {
		return nil
	}
	v, _ := enum.Parse[E](*word)
	return &v
}

func requireEnum[E enum.Enum](o *lenientjson.Object, name string) E {
	o.Require(name)
	if v := readEnum[E](o, name); v != nil {
		return *v
	}
	return 0
}

func readDocument(o *lenientjson.Object, part *contentv1.Content) {
	uri := o.RequireText("document")
	filename, mimeType := describeDocument(uri)
	if given := o.Text("filename"); given != "" {
		filename = given
	}
	if given := o.Text("mime_type"); given != "" {
		mimeType = given
	}
	citations := o.Bool("citations")
	part.Part = &contentv1.Content_Document{Document: &contentv1.Document{
		Media: uriMedia(uri), Filename: filename, MimeType: mimeType, Citations: citations != nil && *citations,
	}}
}

// describeDocument guesses the name and the media type of a document from its data URI, or from its path.
func describeDocument(uri string) (filename, mimeType string) {
	if uri == "" {
		return "", ""
	}
	if rest, ok := strings.CutPrefix(uri, "data:"); ok {
		mimeType = "application/octet-stream"
		if head, _, hasBody := strings.Cut(rest, ","); hasBody {
			if declared, _, _ := strings.Cut(head, ";"); declared != "" {
				mimeType = declared
			}
		}
		_, subtype, _ := strings.Cut(mimeType, "/")
		return "document." + subtype, mimeType
	}
	return path.Base(uri), MediaTypeOf(uri)
}

func readData(o *lenientjson.Object, part *contentv1.Content) {
	o.Require("data")
	part.Part = &contentv1.Content_Data{Data: &contentv1.Data{Json: o.RawObject("data")}}
}

func readToolUse(o *lenientjson.Object, part *contentv1.Content) {
	part.Part = &contentv1.Content_ToolUse{ToolUse: &contentv1.ToolUse{
		ToolType:  requireEnum[contentv1.ToolUseType](o, "tool_type"),
		Id:        o.RequireText("id"),
		Name:      o.RequireText("name"),
		Context:   o.String("context"),
		Arguments: o.RequireText("arguments"),
		Result:    o.RequireText("result"),
		Error:     o.String("error"),
	}}
}

// blobScheme marks a place in the JSON form that is a stored body, by its hash.
const blobScheme = "blob:sha256:"

func uriMedia(uri string) *contentv1.Media {
	if hash, ok := strings.CutPrefix(uri, blobScheme); ok {
		return &contentv1.Media{Source: &contentv1.Media_Blob{Blob: &contentv1.BlobRef{Hash: hash}}}
	}
	return &contentv1.Media{Source: &contentv1.Media_Uri{Uri: uri}}
}
