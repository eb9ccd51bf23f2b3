// Package tokens estimates how many tokens a conversation is, for models whose provider does not count them. Text
// counts a token for four characters; media counts its common cost by kind and size. An estimate is for limits and
// displays, never for a bill.
package tokens

import (
	"strings"
	"unicode/utf8"

	"github.com/evalfleet/evalfleet/pkg/chat"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
)

const charactersPerToken = 4

// Text estimates a text; never less than 1.
func Text(text string) int64 { return estimate(utf8.RuneCountInString(text)) }

func estimate(characters int) int64 { return max(1, int64(characters/charactersPerToken)) }

// Messages estimates the tokens of messages, their media included; never less than 1. Texts count as if each were on a
// line of its own.
func Messages(messages []*modelv1.ChatMessage) int64 {
	var c Count
	for _, m := range messages {
		c = c.And(Of(m))
	}
	return c.Tokens()
}

// Count is the content of messages that an estimate needs, so that a growing conversation is counted from its new
// messages alone. The zero Count is that of none.
type Count struct {
	characters int // each text with a line break
	media      int64
}

// Of counts a message.
func Of(m *modelv1.ChatMessage) Count {
	var c Count
	if list := m.GetContent().GetList(); list != nil {
		for _, part := range list.GetParts() {
			c.add(textsOf(part)...)
			c.media += Media(part)
		}
	} else {
		c.add(m.GetContent().GetText())
	}
	for _, call := range m.GetToolCalls() {
		c.add(call.GetFunction(), call.GetArgumentsJson())
	}
	return c
}

func (c *Count) add(texts ...string) {
	for _, text := range texts {
		c.characters += 1 + utf8.RuneCountInString(text)
	}
}

// And returns the count of the messages of both.
func (c Count) And(more Count) Count {
	return Count{characters: c.characters + more.characters, media: c.media + more.media}
}

// Tokens returns the estimate.
func (c Count) Tokens() int64 { return estimate(c.characters-1) + c.media } // no line break before the first text

// textsOf returns the counted text of a part: of reasoning only the summary, of opaque content nothing.
func textsOf(part *contentv1.Content) []string {
	switch p := part.GetPart().(type) {
	case *contentv1.Content_Text:
		return []string{p.Text.GetText()}
	case *contentv1.Content_Reasoning:
		if summary := p.Reasoning.GetSummary(); summary != "" {
			return []string{summary}
		}
	case *contentv1.Content_ToolUse:
		texts := []string{p.ToolUse.GetName(), p.ToolUse.GetArguments(), p.ToolUse.GetResult()}
		if fault := p.ToolUse.GetError(); fault != "" {
			texts = append(texts, fault)
		}
		return texts
	}
	return nil
}

// Tools estimates the definitions of tools; zero when there are none.
func Tools(tools []*toolv1.ToolInfo) int64 {
	if len(tools) == 0 {
		return 0
	}
	return Text(string(chat.ToolsJSON(tools)))
}

// The cost of media, also if its size in bytes is unknown since it is not inline.
const (
	imageLow       = 85
	image          = 765
	unknownAudio   = 2000
	unknownVideo   = 8000
	unknownPaper   = 5000
	leastAudio     = 50
	leastVideo     = 100
	leastPaper     = 100
	wavPerSecond   = 176_000
	mp3PerSecond   = 16_000
	audioRate      = 50
	videoPerSecond = 500_000
	videoRate      = 400
	bytesPerPage   = 100_000
	pageRate       = 1000
)

// Media estimates a part that is media; zero for others.
func Media(part *contentv1.Content) int64 {
	switch p := part.GetPart().(type) {
	case *contentv1.Content_Image:
		if p.Image.GetDetail() == contentv1.ImageDetail_IMAGE_DETAIL_LOW {
			return imageLow
		}
		return image
	case *contentv1.Content_Audio:
		perSecond := wavPerSecond
		if p.Audio.GetFormat() == contentv1.AudioFormat_AUDIO_FORMAT_MP3 {
			perSecond = mp3PerSecond
		}
		return bySize(p.Audio.GetMedia(), perSecond, audioRate, leastAudio, unknownAudio)
	case *contentv1.Content_Video:
		return bySize(p.Video.GetMedia(), videoPerSecond, videoRate, leastVideo, unknownVideo)
	case *contentv1.Content_Document:
		return bySize(p.Document.GetMedia(), bytesPerPage, pageRate, leastPaper, unknownPaper)
	default:
		return 0
	}
}

func bySize(media *contentv1.Media, unit, rate int, least, unknown int64) int64 {
	uri := media.GetUri()
	if !strings.HasPrefix(uri, "data:") {
		return unknown
	}
	bytes := len(uri) * 3 / 4
	return max(least, int64(float64(bytes)/float64(unit)*float64(rate)))
}
