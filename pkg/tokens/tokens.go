// Package tokens estimates how many tokens a conversation is from its characters: a token for four of them, and for
// media a usual cost by kind and size. An estimate is cheap and deterministic. It is for limits and reservations, never
// for a bill: texts in Chinese or Japanese, for example, are more tokens than that.
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

// Rough estimates the tokens of messages, their media included; never less than 1. Texts count as if each were on a
// line of its own.
func Rough(messages []*modelv1.ChatMessage) int64 {
	var c Count
	for _, m := range messages {
		c = c.And(Of(m))
	}
	return c.Tokens()
}

// RoughTools estimates the definitions of tools; zero where there are none.
func RoughTools(tools []*toolv1.ToolInfo) int64 {
	if len(tools) == 0 {
		return 0
	}
	return Characters(utf8.RuneCount(chat.ToolsJSON(tools)))
}

// Characters estimates a text of so many characters; never less than 1.
func Characters(characters int) int64 { return max(1, int64(characters/charactersPerToken)) }

// Count is the content of messages that a rough estimate needs, so that a growing conversation is counted from its new
// messages alone. The zero Count is that of none.
type Count struct {
	characters int // each text with a line break
	media      int64
}

// Of counts a message.
func Of(m *modelv1.ChatMessage) Count {
	var c Count
	c.media = read(m, func(text string) { c.characters += 1 + utf8.RuneCountInString(text) })
	return c
}

// And returns the count of the messages of both.
func (c Count) And(more Count) Count {
	return Count{characters: c.characters + more.characters, media: c.media + more.media}
}

// Tokens returns the rough estimate.
func (c Count) Tokens() int64 { return Characters(c.characters-1) + c.media } // no line break before the first text

// Texts returns the text of messages that counts, and the tokens of their media.
func Texts(messages []*modelv1.ChatMessage) (text string, media int64) {
	var all []string
	for _, m := range messages {
		media += read(m, func(text string) { all = append(all, text) })
	}
	return strings.Join(all, "\n"), media
}

// read gives the texts of a message that count, and returns the tokens of its media. Of reasoning only the summary
// counts, of opaque content nothing.
func read(m *modelv1.ChatMessage, text func(string)) (media int64) {
	if list := m.GetContent().GetList(); list != nil {
		for _, part := range list.GetParts() {
			readPart(part, text)
			media += Media(part)
		}
	} else {
		text(m.GetContent().GetText())
	}
	for _, call := range m.GetToolCalls() {
		text(call.GetFunction())
		text(call.GetArgumentsJson())
	}
	return media
}

func readPart(part *contentv1.Content, text func(string)) {
	switch p := part.GetPart().(type) {
	case *contentv1.Content_Text:
		text(p.Text.GetText())
	case *contentv1.Content_Reasoning:
		if summary := p.Reasoning.GetSummary(); summary != "" {
			text(summary)
		}
	case *contentv1.Content_ToolUse:
		text(p.ToolUse.GetName())
		text(p.ToolUse.GetArguments())
		text(p.ToolUse.GetResult())
		if fault := p.ToolUse.GetError(); fault != "" {
			text(fault)
		}
	}
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
