package chat

import (
	"slices"
	"strings"

	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
)

// Text returns the text of a message: its plain text, or its text parts joined by line breaks.
func Text(m *modelv1.ChatMessage) string { return ContentText(m.GetContent()) }

// ResultText is the text of a tool's result as formats send it that have no place for an error: its content, or its
// error.
func ResultText(m *modelv1.ChatMessage) string {
	if failure := m.GetError(); failure != nil {
		return "Error: " + failure.GetMessage()
	}
	return Text(m)
}

// ContentText is Text of content.
func ContentText(c *contentv1.MessageContent) string {
	list := c.GetList()
	if list == nil {
		return c.GetText()
	}
	var texts []string
	for _, part := range list.GetParts() {
		if text := part.GetText(); text != nil {
			texts = append(texts, text.GetText())
		}
	}
	return strings.Join(texts, "\n")
}

// SetText replaces the text of a message. In a list of parts one new text takes the place of the first text, or is
// appended if there was none, and the other texts are removed.
func SetText(m *modelv1.ChatMessage, text string) {
	list := m.GetContent().GetList()
	if list == nil {
		m.Content = TextContent(text)
		return
	}
	parts := slices.Clone(list.GetParts())
	isText := func(p *contentv1.Content) bool { return p.GetText() != nil }
	place := slices.IndexFunc(parts, isText)
	if place < 0 {
		place = len(parts)
	}
	parts = slices.DeleteFunc(parts, isText)
	m.Content = ListContent(slices.Insert(parts, place, TextPart(text))...)
}

// Parts returns content as a list of parts; a plain text is one text part. The list must not be changed.
func Parts(c *contentv1.MessageContent) []*contentv1.Content {
	if list := c.GetList(); list != nil {
		return list.GetParts()
	}
	return []*contentv1.Content{TextPart(c.GetText())}
}

// Media returns the media of an image, audio, video or document; nil for other parts. It is the part's own, not a copy.
func Media(part *contentv1.Content) *contentv1.Media {
	switch p := part.GetPart().(type) {
	case *contentv1.Content_Image:
		return p.Image.GetMedia()
	case *contentv1.Content_Audio:
		return p.Audio.GetMedia()
	case *contentv1.Content_Video:
		return p.Video.GetMedia()
	case *contentv1.Content_Document:
		return p.Document.GetMedia()
	}
	return nil
}

// LastAssistant returns the last message of the model, or nil.
func LastAssistant(messages []*modelv1.ChatMessage) *modelv1.ChatMessage {
	return last(messages, modelv1.Role_ROLE_ASSISTANT)
}

// LastUser returns the last user message, or nil.
func LastUser(messages []*modelv1.ChatMessage) *modelv1.ChatMessage {
	return last(messages, modelv1.Role_ROLE_USER)
}

func last(messages []*modelv1.ChatMessage, role modelv1.Role) *modelv1.ChatMessage {
	for _, m := range slices.Backward(messages) {
		if m.GetRole() == role {
			return m
		}
	}
	return nil
}
