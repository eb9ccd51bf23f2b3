package prepare

import (
	"strings"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

// The placeholders in a tool's result for media that follows in a message of its own.
const (
	imageBelow    = "The image follows below."
	documentBelow = "The document follows below."
)

// ToolMedia moves images and documents out of tool results for a provider that does not accept them there. The media of
// consecutive results follow in one user message, which names the calls.
func ToolMedia(messages []*modelv1.ChatMessage, imagesStay, documentsStay bool) []*modelv1.ChatMessage {
	moves := func(part *contentv1.Content) (note string, ok bool) {
		switch {
		case part.GetImage() != nil && !imagesStay:
			return imageBelow, true
		case part.GetDocument() != nil && !documentsStay:
			return documentBelow, true
		}
		return "", false
	}
	var out []*modelv1.ChatMessage
	var moved []*contentv1.Content
	var calls []string
	flush := func() {
		if len(moved) > 0 {
			out = append(out, &modelv1.ChatMessage{
				Id: chat.NewID(), Role: modelv1.Role_ROLE_USER, Content: chat.ListContent(moved...), ToolCallIds: calls,
			})
		}
		moved, calls = nil, nil
	}
	for _, m := range messages {
		left, taken := splitMedia(m, moves)
		if len(taken) == 0 {
			flush()
			out = append(out, m)
			continue
		}
		moved = append(moved, taken...)
		calls = append(calls, m.GetToolCallIds()...)
		result := changed(m)
		result.Content = chat.ListContent(left...)
		out = append(out, result)
	}
	flush()
	return out
}

// splitMedia splits a tool's result into the rest, with notes, and the removed media.
func splitMedia(m *modelv1.ChatMessage, moves func(*contentv1.Content) (string, bool)) (left, taken []*contentv1.Content) {
	if m.GetRole() != modelv1.Role_ROLE_TOOL {
		return nil, nil
	}
	for _, part := range m.GetContent().GetList().GetParts() {
		if note, ok := moves(part); ok {
			left, taken = append(left, chat.TextPart(note)), append(taken, part)
		} else {
			left = append(left, part)
		}
	}
	return left, taken
}

// inline fails on media that is neither part of the conversation nor stored, nor for the provider to fetch: our files
// would be read.
func inline(messages []*modelv1.ChatMessage, fetches provider.Fetches) error {
	for i, m := range messages {
		for j, part := range m.GetContent().GetList().GetParts() {
			media := chat.Media(part)
			if media == nil || media.GetBlob() != nil || strings.HasPrefix(media.GetUri(), "data:") {
				continue
			}
			if fetches.Has(part) && dialect.IsAddress(media.GetUri()) {
				continue
			}
			return rpcerr.InvalidField("messages", "media of message %d, part %d is not inline: give it as a data URI or a blob", i, j)
		}
	}
	return nil
}
