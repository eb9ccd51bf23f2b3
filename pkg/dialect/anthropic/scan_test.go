package anthropic_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"google.golang.org/protobuf/proto"

	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/anthropic"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
)

// However long an answer is, and wherever it says its usage, that is seen.
func TestScanUsageAtALongAnswer(t *testing.T) {
	t.Parallel()
	content := `"content":[{"type":"text","text":"` + strings.Repeat(`\"usage\":{}`, 2000) + `"}]`
	for _, answer := range []string{
		`{"id":"msg_1",` + content + `,"stop_reason":"max_tokens","usage":{"input_tokens":5}}`,
		`{"id":"msg_1","stop_reason":"max_tokens","usage":{"input_tokens":5},` + content + `}`,
		`{` + content + `,"id":"msg_1","stop_reason":"max_tokens","usage":{"input_tokens":5},"more":{` + content + `}}`,
	} {
		var facts dialect.Facts
		anthropic.Codec{}.ScanUsage([]byte(answer), &facts)
		assert.Equal(t, "msg_1", facts.ID)
		assert.Equal(t, modelv1.StopReason_STOP_REASON_MAX_TOKENS, facts.StopReason)
		assert.Equal(t, int64(5), facts.Usage.GetInputTokens())
	}
}

// A stream says its usage in two parts, of which the later replaces what it says.
func TestScanUsageAtAStream(t *testing.T) {
	t.Parallel()
	var facts dialect.Facts
	for _, data := range []string{
		`{"type":"message_start","message":{"id":"msg_1","usage":{"input_tokens":5,"cache_creation_input_tokens":4,"output_tokens":1}}}`,
		`{"type":"ping"}`, `{"type":"content_block_delta","delta":{"type":"text_delta","text":"a"}}`, `{`, `{"usage":`, `{"usage":7}`,
		`{"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"output_tokens":20}}`,
	} {
		anthropic.Codec{}.ScanUsage([]byte(data), &facts)
	}
	assert.Equal(t, "msg_1", facts.ID)
	assert.Equal(t, modelv1.StopReason_STOP_REASON_TOOL_CALLS, facts.StopReason)
	assert.True(t, proto.Equal(&modelv1.ModelUsage{InputTokens: 5, InputTokensCacheWrite: new(int64(4)), OutputTokens: 20, TotalTokens: 29}, facts.Usage), "%v", facts.Usage)
	assert.Equal(t, int64(3), facts.Pieces)
}

func TestUsageThatCannotBeIsUnknown(t *testing.T) {
	t.Parallel()
	for said, want := range map[string]*modelv1.ModelUsage{
		`{"input_tokens":-1000000,"output_tokens":-1000000}`:                nil,
		`{"input_tokens":5,"output_tokens":-1}`:                             nil,
		`{"input_tokens":5,"output_tokens":2,"cache_read_input_tokens":-9}`: {InputTokens: 5, OutputTokens: 2, TotalTokens: 7},
		`{"input_tokens":9223372036854775807,"output_tokens":9223372036854775807}`: {
			InputTokens: 1 << 53, OutputTokens: 1 << 53, TotalTokens: 1 << 53,
		},
	} {
		answer := []byte(`{"id":"msg_1","type":"message","content":[{"type":"text","text":"a"}],"usage":` + said + `}`)
		var facts dialect.Facts
		anthropic.Codec{}.ScanUsage(answer, &facts)
		assert.True(t, proto.Equal(want, facts.Usage), "%s: %v", said, facts.Usage)
		got := decode(t, string(answer)).GetUsage()
		assert.True(t, proto.Equal(want, got), "%s: %v", said, got)
	}
}

// What a tool was called with, or said, has members of any name, which say nothing of the answer.
func TestScanUsageReadsTheAnswersOwnMembers(t *testing.T) {
	t.Parallel()
	var facts dialect.Facts
	for _, data := range []string{
		`{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"t","name":"f","input":{"error":"no","type":"message_stop"}}}`,
		`{"type":"message_delta","delta":{"container":{"stop_reason":"refusal"},"stop_reason":"tool_use"},"usage":{"output_tokens":20}}`,
	} {
		anthropic.Codec{}.ScanUsage([]byte(data), &facts)
	}
	assert.False(t, facts.Ended)
	assert.False(t, facts.Failed)
	assert.Equal(t, modelv1.StopReason_STOP_REASON_TOOL_CALLS, facts.StopReason)
	anthropic.Codec{}.ScanUsage([]byte(`{"type":"message_stop"}`), &facts)
	assert.True(t, facts.Ended)
	anthropic.Codec{}.ScanUsage([]byte(`{"type":"error","error":{"type":"overloaded_error","message":"m"}}`), &facts)
	assert.True(t, facts.Failed)
}
