package grok

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/xai"
)

func TestManyCallsAreCollected(t *testing.T) {
	t.Parallel()
	const calls = 100_000
	c := &collected{asked: &asked{name: "grok-4-fast"}}
	begun := time.Now()
	for i := range 2 * calls { // each call twice, as the server says how far it is with one
		call := &xai.ToolCall{Id: fmt.Sprintf("call_%06d", i%calls), Status: xai.ToolCallStatus(i / calls)}
		c.add(&xai.GetChatCompletionChunk{Outputs: []*xai.CompletionOutputChunk{{Delta: &xai.Delta{ToolCalls: []*xai.ToolCall{call}}}}})
	}
	collected := c.response().GetOutputs()[0].GetMessage().GetToolCalls()
	assert.Len(t, collected, calls)
	assert.Equal(t, xai.ToolCallStatus(1), collected[7].GetStatus())
	assert.Less(t, time.Since(begun), waittest.Bound)
}
