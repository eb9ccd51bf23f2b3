package anthropic_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/anthropic"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
)

// A call of an action of a set of tools is a call of the platform's one tool, whole and in a stream, and goes back as a
// call of the action.
func TestCallsOfASetOfTools(t *testing.T) {
	t.Parallel()
	const block = `{"type":"tool_use","id":"c1","name":"left_click","toolset_name":"computer","input":{"coordinate":[1, 2]}}`
	const want = `{"action":"left_click","coordinate":[1,2]}`
	whole, err := anthropic.Codec{}.DecodeResponse([]byte(`{"content":[` + block + `],"stop_reason":"tool_use"}`))
	require.NoError(t, err)
	output, err := whole.Output(nil)
	require.NoError(t, err)
	call := chat.FirstMessage(output).GetToolCalls()[0]
	assert.Equal(t, "computer", call.GetFunction())
	assert.JSONEq(t, want, call.GetArgumentsJson())

	r := anthropic.Codec{}.NewStreamReader()
	var arguments, function string
	for _, event := range []string{
		`{"type":"message_start","message":{"content":[]}}`,
		`{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"c1","name":"left_click","toolset_name":"computer","input":{}}}`,
		`{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{\"coordinate\":"}}`,
		`{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"[1, 2]}"}}`,
		`{"type":"content_block_stop","index":0}`, `{"type":"message_delta","delta":{"stop_reason":"tool_use"}}`, `{"type":"message_stop"}`,
	} {
		deltas, err := r.Add(dialect.Event{Data: []byte(event)})
		require.NoError(t, err)
		for _, delta := range deltas {
			function += delta.GetToolCall().GetFunction()
			arguments += delta.GetToolCall().GetArguments()
		}
	}
	assert.Equal(t, "computer", function)
	assert.JSONEq(t, want, arguments)
	output, err = r.Response().Output(nil)
	require.NoError(t, err)
	assert.JSONEq(t, want, chat.FirstMessage(output).GetToolCalls()[0].GetArgumentsJson())

	request := &anthropic.Request{
		Request: dialect.Request{Model: "m", Messages: []*modelv1.ChatMessage{
			chat.User("q"), chat.FirstMessage(output),
			{Role: modelv1.Role_ROLE_TOOL, ToolCallIds: []string{"c1"}, Function: "computer", Content: chat.TextContent("done")},
		}, Tools: []*toolv1.ToolInfo{{Name: "computer"}}},
		Native: map[string][]string{"computer": {`{"type":"computer_toolset_20260801"}`}}, Toolset: "computer", Cache: anthropic.Cache{Off: true},
	}
	body, err := request.Append(nil)
	require.NoError(t, err)
	assert.JSONEq(t, `{"model":"m","stream":false,"tools":[{"type":"computer_toolset_20260801"}],"messages":[{"role":"user","content":"q"},
		{"role":"assistant","content":[`+block+`]},
		{"role":"user","content":[{"type":"tool_result","tool_use_id":"c1","toolset_name":"computer","content":[{"type":"text","text":"done"}],"is_error":false}]}]}`, string(body))
}
