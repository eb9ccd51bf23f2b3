package tokens_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/evalfleet/evalfleet/pkg/chat"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/tokens"
)

func TestAConversationIsCountedByItsTexts(t *testing.T) {
	t.Parallel()
	m := chat.Assistant("", chat.Call("id", "four", `{"a":12345}`))
	m.Content = chat.ListContent(chat.TextPart("12345678"), chat.ReasoningPart("not counted"), chat.ImagePart("data:image/png;base64,AAAA"))
	// "12345678\nfour\n{"a":12345}" is 25 characters; the image costs what images cost.
	assert.Equal(t, int64(25/4+765), tokens.Rough([]*modelv1.ChatMessage{m}))
	assert.Equal(t, int64(1), tokens.Rough(nil))
	assert.Zero(t, tokens.RoughTools(nil))
}
