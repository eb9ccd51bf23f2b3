package cachemark_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect/cachemark"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
)

func TestMarksAreTakenFromACopy(t *testing.T) {
	t.Parallel()
	part := chat.TextPart("x")
	part.GetText().CacheBreakpoint = new(true)
	marked, plain := chat.User(""), chat.User("y")
	marked.Content = chat.ListContent(part, chat.ImagePart("u"))
	without := cachemark.Without([]*modelv1.ChatMessage{marked, plain})
	assert.True(t, cachemark.In(marked))
	assert.False(t, cachemark.In(without[0]))
	assert.Equal(t, "x", chat.Text(without[0]))
	assert.Same(t, plain, without[1])
}
