package openai

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/evalfleet/evalfleet/pkg/chat"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/waittest"
)

func TestTheLastOfTheLeadingSystemMessagesEndsThem(t *testing.T) {
	t.Parallel()
	messages := make([]*modelv1.ChatMessage, 200_000)
	for i := range messages {
		messages[i] = chat.System("a")
	}
	messages[0].Content = chat.ListContent(&contentv1.Content{Part: &contentv1.Content_Text{Text: &contentv1.Text{Text: "a", CacheBreakpoint: new(true)}}})
	ends := func() (all []int) {
		marks := NewMarks(messages, true)
		for i := range messages {
			if marks.EndsSystem(i) {
				all = append(all, i)
			}
		}
		return all
	}
	begun := time.Now()
	assert.Equal(t, []int{len(messages) - 1}, ends())
	messages[7] = chat.User("b")
	assert.Equal(t, []int{6}, ends())
	messages[0], messages[1] = messages[7], messages[0]
	assert.Empty(t, ends())
	assert.Less(t, time.Since(begun), waittest.Bound)
}
