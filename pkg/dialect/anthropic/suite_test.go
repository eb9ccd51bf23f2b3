package anthropic_test

import (
	"testing"

	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/anthropic"
	"github.com/evalfleet/evalfleet/pkg/dialect/dialecttest"
)

const everyBlock = `[{"type":"text","text":"a","citations":[{"type":"char_location","document_index":0,"start_char_index":0,"end_char_index":1}]},` +
	`{"type":"thinking","thinking":"b","signature":"c"},{"type":"redacted_thinking","data":"d"},{"type":"tool_use","id":"e","name":"f","input":{"g":[1,2.0]}},` +
	`{"type":"server_tool_use","id":"h","name":"web_search","input":{}},{"type":"web_search_tool_result","tool_use_id":"h","content":[]},` +
	`{"type":"mcp_tool_use","id":"i","name":"j","server_name":"k"},{"type":"mcp_tool_result","tool_use_id":"i","is_error":true,"content":"l"},` +
	`{"type":"compaction","content":"m"},{"type":"fallback","from":{"model":"n"},"to":{"model":"o"}},{"type":"image","source":{"type":"url","url":"p"}}]`

var suite = dialecttest.Harness{
	Codec: anthropic.Codec{},
	Requests: []string{
		conversationBody,
		`{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"x"},{"role":"assistant","content":[{"type":"tool_use","id":"t","name":"f","input":{}}]},` +
			`{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"aGk="}}]},` +
			`{"type":"document","source":{"type":"content","content":[{"type":"text","text":"x"}]}}]}]}`,
		`{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"x"}],"system":"s","tool_choice":{"type":"none"},"output_format":{"type":"json_schema","schema":{}}}`,
		`{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"x"},{"role":"assistant","content":[` +
			`{"type":"server_tool_use","id":"h","name":"web_search","input":{}},{"type":"web_search_tool_result","tool_use_id":"h","content":[{"type":"web_search_result","encrypted_content":"evalfleet:2:"}]},` +
			`{"type":"mcp_tool_use","id":"i","name":"j","server_name":"k"},{"type":"mcp_tool_result","tool_use_id":"i","is_error":true,"content":"l"}]},{"role":"user","content":"y"}],` +
			`"tools":[{"type":"web_search_20250305","name":"web_search","allowed_domains":["a"],"max_uses":2,"user_location":{"type":"approximate","city":"c"}},` +
			`{"type":"code_execution_20250825","name":"code_execution"},{"type":"mcp_toolset","mcp_server_name":"s","default_config":{"enabled":false},"configs":{"f":{"enabled":true}}}],` +
			`"mcp_servers":[{"type":"url","name":"s","url":"https://s.example","authorization_token":"t","tool_configuration":{"allowed_tools":["f"]}}]}`,
	},
	Responses: []string{answerBody, `{"content":` + everyBlock + `,"usage":{"input_tokens":1},"stop_details":{"category":"c"}}`},
	Streams: map[string]dialecttest.Stream{
		"thinking, text and a call": {
			Events: `event: message_start
data: {"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","content":[],"model":"served","stop_reason":null,"usage":{"input_tokens":1,"cache_read_input_tokens":3,"output_tokens":1}}}

event: content_block_start
data: {"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}

event: ping
data: {"type": "ping"}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"Two and "}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"two."}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"c2ln"}}

event: content_block_stop
data: {"type":"content_block_stop","index":0}

event: content_block_start
data: {"type":"content_block_start","index":1,"content_block":{"type":"text","text":""}}

event: content_block_delta
data: {"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"Größe "}}

event: content_block_delta
data: {"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"four."}}

event: content_block_stop
data: {"type":"content_block_stop","index":1}

event: content_block_start
data: {"type":"content_block_start","index":2,"content_block":{"type":"tool_use","id":"toolu_1","name":"add","input":{}}}

event: content_block_delta
data: {"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":""}}

event: content_block_delta
data: {"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"{\"b\": 1.0, "}}

event: content_block_delta
data: {"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"\"a\": 2}"}}

event: content_block_stop
data: {"type":"content_block_stop","index":2}

event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"output_tokens":20,"output_tokens_details":{"thinking_tokens":9}}}

event: message_stop
data: {"type":"message_stop"}

`,
			Body: `{"id":"msg_1","type":"message","role":"assistant","model":"served","content":[{"type":"thinking","thinking":"Two and two.","signature":"c2ln"},{"type":"text","text":"Größe four."},` +
				`{"type":"tool_use","id":"toolu_1","name":"add","input":{"b": 1.0, "a": 2}}],"stop_reason":"tool_use",` +
				`"usage":{"input_tokens":1,"cache_read_input_tokens":3,"output_tokens":20,"output_tokens_details":{"thinking_tokens":9}}}`,
		},
	},
	Errors: map[string]dialect.Error{
		`{"type":"error","error":{"type":"rate_limit_error","message":"slow"}}`: {Type: "rate_limit_error", Message: "slow", Status: 429},
		`{"type":"error","error":{"type":"overloaded_error","message":"busy"}}`: {Type: "overloaded_error", Message: "busy", Status: 529, Transient: true},
		`{"type":"error","error":{"type":"new_error","message":"Overloaded"}}`:  {Type: "new_error", Message: "Overloaded", Transient: true},
		`{"error":"plain"}`: {Message: "plain"},
		`{"error":{}}`:      {Message: `{"error":{}}`},
	},
	Malformed: []string{`{"content":null}`, `{"content":"text"}`, `{"content":[{"type":5}]}`, `{"content":[`},
	MalformedEvents: []string{
		`{"type":"content_block_start","index":1,"content_block":{"type":"text"}}`, `{"type":"content_block_start","index":2000000000,"content_block":{"type":"text"}}`,
		`{"type":"content_block_start","index":0,"content_block":7}`, `{"type":"content_block_delta","index":7}`, `{"type":"content_block_delta","index":-1}`,
		`{"type":"content_block_stop","index":0}`,
	},
}

func TestSuite(t *testing.T) {
	t.Parallel()
	dialecttest.Run(t, suite)
}

func FuzzParseRequest(f *testing.F)   { dialecttest.FuzzParseRequest(f, suite) }
func FuzzDecodeResponse(f *testing.F) { dialecttest.FuzzDecodeResponse(f, suite) }
func FuzzStream(f *testing.F)         { dialecttest.FuzzStream(f, suite) }
func FuzzScanUsage(f *testing.F)      { dialecttest.FuzzScanUsage(f, suite) }
