package anthropic_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/anthropic"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
)

// An answer that is relayed unread is billed as it says: by the model that answered, with writes to the cache for an
// hour apart, and in a mode with prices of its own.
func TestScanUsageFindsWhatAnAnswerIsBilledBy(t *testing.T) {
	t.Parallel()
	const handoff = `{"type":"fallback","from":{"model":"a"},"to":{"model":"b"}}`
	for name, tt := range map[string]struct {
		docs []string
		want dialect.Billing
	}{
		"a plain answer": {
			[]string{`{"content":[{"type":"tool_use","input":{"fallback":"x"}}],"usage":{"input_tokens":1,"output_tokens":1,"speed":"standard"}}`}, dialect.Billing{},
		},
		"all of it": {
			[]string{`{"content":[` + handoff + `],"usage":{"input_tokens":1,"cache_creation_input_tokens":9,"cache_creation":{"ephemeral_5m_input_tokens":4,"ephemeral_1h_input_tokens":5},"speed":"fast"}}`},
			dialect.Billing{LongCacheWrite: new(int64(5)), Model: "b", Mode: "fast"},
		},
		"several passes": {
			[]string{`{"content":[],"usage":{"input_tokens":1,"output_tokens":1,"cache_creation":{"ephemeral_1h_input_tokens":5},"iterations":[` +
				`{"input_tokens":1,"output_tokens":1,"cache_creation":{"ephemeral_1h_input_tokens":7}},{"input_tokens":1,"output_tokens":1,"cache_creation":{"ephemeral_1h_input_tokens":5}}]}}`},
			dialect.Billing{LongCacheWrite: new(int64(12)), Passes: []*modelv1.ModelUsage{
				{InputTokens: 1, OutputTokens: 1, TotalTokens: 2}, {InputTokens: 1, OutputTokens: 1, TotalTokens: 2},
			}},
		},
		"several passes that do not say": {
			[]string{`{"content":[],"usage":{"input_tokens":1,"cache_creation":{"ephemeral_1h_input_tokens":5},"iterations":[{"input_tokens":1,"output_tokens":1}]}}`},
			dialect.Billing{LongCacheWrite: new(int64(5))},
		},
		"another region and speed": {
			[]string{`{"content":[],"usage":{"input_tokens":1,"speed":"fast","inference_geo":"us","service_tier":"standard"}}`}, dialect.Billing{Mode: "fast us"},
		},
		"what is usual": {
			[]string{`{"content":[],"usage":{"input_tokens":1,"speed":"standard","inference_geo":"global","service_tier":"batch"}}`}, dialect.Billing{},
		},
		"a stream": {
			[]string{
				`{"type":"message_start","message":{"usage":{"input_tokens":1,"cache_creation":{"ephemeral_1h_input_tokens":5},"speed":"fast"}}}`,
				`{"type":"content_block_start","index":0,"content_block":` + handoff + `}`,
				`{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":3}}`,
			},
			dialect.Billing{LongCacheWrite: new(int64(5)), Model: "b", Mode: "fast"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var facts dialect.Facts
			for _, doc := range tt.docs {
				anthropic.Codec{}.ScanUsage([]byte(doc), &facts)
			}
			assert.Equal(t, tt.want, facts.Billing)
		})
	}
}
