package dialecttest

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/summary"
)

// compactions checks that what replaces a conversation reaches the client in every form of an answer, and that its
// summary is in a request with it.
func compactions(t *testing.T, h Harness, compactor dialect.Compactor) {
	m := chat.Assistant("")
	part := compactor.Compacted(hard)
	m.Content = chat.ListContent(part)
	assert.True(t, dialect.IsCompaction(part), "formats that cannot express it refuse it")
	output := chat.MessageOutput("served", m, modelv1.StopReason_STOP_REASON_STOP)
	output.Usage = &modelv1.ModelUsage{InputTokens: 3, OutputTokens: 2, TotalTokens: 5}
	said := chat.User("asked before")
	alone, err := compactor.AppendCompactResponse([]byte("kept"), []*modelv1.ChatMessage{said}, output, meta(h))
	require.NoError(t, err)
	require.True(t, json.Valid(alone[4:]), "%s", alone)
	sealed, err := json.Marshal(dialect.Seal(chat.TextPart(hard)))
	require.NoError(t, err)
	for form, answer := range map[string]string{"whole": string(encode(t, h, output)), "streamed": stream(t, h, output, nil), "alone": string(alone)} {
		assert.Contains(t, answer, string(sealed), form)
	}
	assert.Contains(t, string(alone), "asked before")

	request := &dialect.Request{Model: "m", Messages: []*modelv1.ChatMessage{said, m, chat.User("go on")}}
	got, err := h.Codec.ParseRequest(appendRequest(t, h, request))
	require.NoError(t, err)
	require.Len(t, got.Messages, 3)
	assert.Equal(t, chat.Text(summary.Message(hard)), chat.Text(got.Messages[1]))
	assert.True(t, summary.Is(got.Messages[1]))
	assert.NotEmpty(t, got.Messages[1].GetId())
	assert.False(t, got.Compact)
}
