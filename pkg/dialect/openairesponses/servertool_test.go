package openairesponses_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/openairesponses"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
)

// What a tool of the server did is in the answer, and goes back as the server takes it.
func TestWhatToolsOfTheServerDidGoesBack(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ item, part, back string }{
		"a search": {
			`{"type":"web_search_call","id":"w","status":"completed","action":{"type":"search","query":"q"}}`,
			`{"type":"tool_use","tool_type":"web_search","id":"w","name":"search","arguments":"{\"type\":\"search\",\"query\":\"q\"}","result":""}`,
			`{"type":"web_search_call","id":"w","status":"completed","action":{"type":"search","query":"q"}}`,
		},
		"a failed search without an action": {
			`{"type":"web_search_call","id":"w","status":"failed"}`,
			`{"type":"tool_use","tool_type":"web_search","id":"w","name":"search","arguments":"{\"type\":\"search\",\"query\":\"\"}","result":"","error":"failed"}`,
			`{"type":"web_search_call","id":"w","status":"completed","action":{"type":"search","query":""}}`,
		},
		"code": {
			`{"type":"code_interpreter_call","id":"c","status":"completed","code":"f()","outputs":[{"type":"logs","logs":"1"},{"type":"image","url":"u"}]}`,
			`{"type":"tool_use","tool_type":"code_execution","id":"c","name":"code_interpreter_call","arguments":"f()","result":"1\n\nimage: u"}`,
			`{"type":"message","role":"assistant","status":"completed","content":[{"type":"output_text","text":"code_interpreter: f()\n\n1\n\nimage: u","annotations":[],"logprobs":[]}]}`,
		},
		"a call of a server's tool": {
			`{"type":"mcp_call","id":"m","server_label":"l","name":"f","arguments":"{}","output":"hit"}`,
			`{"type":"tool_use","tool_type":"mcp_call","id":"m","name":"f","context":"l","arguments":"{}","result":"hit"}`,
			`{"type":"mcp_call","id":"m","server_label":"l","name":"f","arguments":"{}","output":"hit"}`,
		},
		"a failed call of a server's tool": {
			`{"type":"mcp_call","id":"m","server_label":"l","name":"f","arguments":"{}","error":{"type":"http_error","message":"no"}}`,
			`{"type":"tool_use","tool_type":"mcp_call","id":"m","name":"f","context":"l","arguments":"{}","result":"","error":"no"}`,
			`{"type":"mcp_call","id":"m","server_label":"l","name":"f","arguments":"{}","output":"","error":{"type":"mcp_tool_execution_error","content":"no"}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			output, err := decode(`{"status":"completed","output":[` + tt.item + `]}`)
			require.NoError(t, err)
			message := chat.FirstMessage(output)
			want := parseMessages(t, `[{"role":"assistant","content":[`+tt.part+`]}]`)[0]
			assert.Equal(t, want.GetContent().String(), message.GetContent().String())
			back := encodeInput(t, &openairesponses.Request{Request: dialect.Request{Messages: []*modelv1.ChatMessage{message}}})
			assert.JSONEq(t, "["+tt.back+"]", back)
		})
	}
	foreign := parseMessages(t, `[{"role":"assistant","content":[
		{"type":"tool_use","tool_type":"web_search","id":"w","name":"web_search","arguments":"{\"query\":\"q\"}","result":"r"},
		{"type":"tool_use","tool_type":"mcp_call","id":"m","name":"mcp_list_tools","arguments":"","result":"[]"}]}]`)
	assert.JSONEq(t, `[{"type":"web_search_call","id":"w","status":"completed","action":{"type":"search","query":"q"}}]`,
		encodeInput(t, &openairesponses.Request{Request: dialect.Request{Messages: foreign}}))
}
