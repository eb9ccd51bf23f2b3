package mistralconversations_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/dialecttest"
	"github.com/evalfleet/evalfleet/pkg/dialect/mistralconversations"
)

// entries are those of an answer with all that a stream can carry.
var entries = []string{
	`{"object":"entry","type":"tool.execution","id":"tool_exec_1","name":"web_search","arguments":"{\"query\": \"sea\"}","info":{"pages": 2}}`,
	`{"object":"entry","type":"message.output","id":"msg_1","role":"assistant","model":"m","created_at":"2024-01-01T00:00:00Z","content":[` +
		`{"type":"thinking","thinking":[{"type":"text","text":"Some thought."}]},{"type":"text","text":"Some text."},{"type":"tool_reference","tool":"web_search","title":"Sea","url":"https://x"}]}`,
	`{"object":"entry","type":"function.call","id":"fc_1","tool_call_id":"c1","name":"f","arguments":"{\"a\": 1}","model":"m"}`,
	`{"object":"entry","type":"function.call","id":"fc_2","tool_call_id":"c2","name":"g","arguments":{},"model":"m"}`,
}

const usage = `{"prompt_tokens":10,"completion_tokens":5,"total_tokens":20,"connector_tokens":5,"connectors":{"web_search":1}}`

// whole is an answer with these entries.
func whole(entries ...string) string {
	return `{"object":"conversation.response","conversation_id":"conv_1","outputs":[` + strings.Join(entries, ",") + `],"usage":` + usage + `}`
}

// stream is the answer as events, with pieces of so many bytes.
func stream(size int) string {
	var b strings.Builder
	event := func(kind, members string) {
		fmt.Fprintf(&b, "event: %s\ndata: {\"type\":%q,\"created_at\":\"2024-01-01T00:00:00Z\",%s}\n\n", kind, kind, members)
	}
	grow := func(kind, text, form string) {
		for text != "" {
			n := min(size, len(text))
			piece, _ := json.Marshal(text[:n])
			event(kind, fmt.Sprintf(form, piece))
			text = text[n:]
		}
	}
	event("conversation.response.started", `"conversation_id":"conv_1"`)
	event("tool.execution.started", `"output_index":0,"id":"tool_exec_1","name":"web_search","arguments":""`)
	grow("tool.execution.delta", `{"query": "sea"}`, `"output_index":0,"id":"tool_exec_1","name":"web_search","arguments":%s`)
	event("tool.execution.done", `"output_index":0,"id":"tool_exec_1","name":"web_search","info":{"pages": 2}`)
	const message = `"output_index":1,"id":"msg_1","model":"m","role":"assistant",`
	grow("message.output.delta", "Some thought.", message+`"content_index":0,"content":{"type":"thinking","thinking":[{"type":"text","text":%s}]}`)
	grow("message.output.delta", "Some text.", message+`"content_index":1,"content":%s`)
	event("message.output.delta", message+`"content_index":2,"content":{"type":"tool_reference","tool":"web_search","title":"Sea","url":"https://x"}`)
	grow("function.call.delta", `{"a": 1}`, `"output_index":2,"id":"fc_1","tool_call_id":"c1","name":"f","model":"m","arguments":%s`)
	event("function.call.delta", `"output_index":3,"id":"fc_2","tool_call_id":"c2","name":"g","model":"m","arguments":"{}"`)
	event("agent.handoff.started", `"id":"x","previous_agent_id":"y"`)
	event("conversation.response.done", `"usage":`+usage)
	return b.String()
}

// bare is a stream whose events have neither ids nor names of their own.
var bare = "event: conversation.response.started\ndata: {\"conversation_id\":\"conv_1\"}\n\n" +
	"event: message.output.delta\ndata: {\"content\":\"Some \",\"model\":\"m\"}\n\n" +
	"event: message.output.delta\ndata: {\"content\":\"text.\",\"model\":\"m\"}\n\n" +
	"event: conversation.response.done\ndata: {\"type\":\"conversation.response.done\",\"usage\":" + usage + "}\n\n"

var suite = dialecttest.Harness{
	Codec: mistralconversations.Codec{}, NoCacheWrites: true, NoReasoningTokens: true, NoStopReasons: true, NoNamedChoice: true,
	Requests: []string{
		`{"model":"m","inputs":"q","instructions":"Be brief.","stream":true,"completion_args":{"tool_choice":"any","response_format":{"type":"text"}}}`,
		`{"model":"m","inputs":[{"role":"user","content":[{"type":"text","text":"q"},{"type":"document_url","document_url":"data:application/pdf;base64,aGk="}]},` +
			strings.Join(entries, ",") + `,{"type":"function.result","tool_call_id":"c1","result":"1"},{"role":"assistant","content":"x"}],"store":false}`,
	},
	Responses: []string{
		whole(entries...), whole(),
		whole(`{"type":"message.output","content":[{"type":"image_url","image_url":"data:image/png;base64,aGk="},{"type":"tool_file","tool":"image_generation","file_id":"f"}]}`,
			`{"type":"agent.handoff","id":"x"}`, `{"type":"tool.execution","name":"code_interpreter","arguments":"1"}`, `{"type":"tool.execution","name":"own","arguments":"{}"}`),
	},
	Streams: map[string]dialecttest.Stream{
		"in small pieces":          {Events: stream(3), Body: whole(entries...)},
		"in one piece":             {Events: stream(1000), Body: whole(entries...)},
		"without names and places": {Events: bare, Body: whole(`{"type":"message.output","model":"m","content":"Some text."}`)},
	},
	Errors: map[string]dialect.Error{
		`{"object":"error","message":"m","type":"invalid_request_error","code":"3000"}`:  {Message: "m", Type: "invalid_request_error", Code: "3000"},
		`{"type":"conversation.response.error","message":"It broke.","code":500}`:        {Message: "It broke.", Type: "conversation.response.error", Code: "500", Status: 500},
		`{"detail":[{"loc":["body"],"msg":"bad","type":"value_error"}]}`:                 {Message: `[{"loc":["body"],"msg":"bad","type":"value_error"}]`},
		`{"object":"error","message":"m","type":"rate_limited","code":1300,"param":"x"}`: {Message: "m", Type: "rate_limited", Code: "1300", Param: "x", Status: 429},
	},
	Malformed: []string{`{"outputs":7}`, `{"outputs":[{"content":7}]}`, `{"conversation_id":"x"}`, `{"outputs":[{"type":7}]}`},
	MalformedEvents: []string{
		`{"type":7}`, `{"type":"message.output.delta","content":7}`, `{"type":"message.output.delta","output_index":"x"}`, `{"type":"function.call.delta","name":7}`,
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
