package dialecttest

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/dialect"
)

// CompleteChoices checks a format whose streams are those of chat completions: an answer of several choices is cut off
// while one of them lacks the reason why it ended, unless the last event came.
func CompleteChoices(t *testing.T, codec dialect.Codec) {
	t.Helper()
	s := codec.NewStreamReader()
	add := func(data string) {
		_, err := s.Add(dialect.Event{Data: []byte(data)})
		require.NoError(t, err)
	}
	add(`{"id":"x","model":"m","choices":[]}`)
	assert.False(t, s.Complete())
	add(`{"choices":[{"index":0,"delta":{"content":"Whole."},"finish_reason":"stop"}]}`)
	assert.True(t, s.Complete())
	add(`{"choices":[{"index":1,"delta":{"content":"Half a"},"finish_reason":null}]}`)
	assert.False(t, s.Complete())
	add(`{"choices":[{"index":1,"delta":{"content":"n answer."},"finish_reason":"stop"}]}`)
	assert.True(t, s.Complete())
	add(`{"choices":[{"index":2,"delta":{"content":"No reason."}}]}`)
	add(`[DONE]`)
	assert.True(t, s.Complete())
}
