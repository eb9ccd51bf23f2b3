package openairesponses_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/dialecttest"
	"github.com/evalfleet/evalfleet/pkg/dialect/openairesponses"
)

// items are those of an answer with all that a stream can carry.
var items = []string{
	`{"id":"rs_1","type":"reasoning","summary":[{"type":"summary_text","text":"Adds."},{"type":"summary_text","text":"Checks."}],"encrypted_content":"ZW5j"}`,
	`{"id":"msg_1","type":"message","role":"assistant","status":"completed","content":[{"type":"output_text","text":"Some text.","annotations":[],` +
		`"logprobs":[{"token":"Some","logprob":-1,"bytes":[83],"top_logprobs":[]}]}],"phase":"commentary"}`,
	`{"id":"fc_1","type":"function_call","status":"completed","call_id":"c1","name":"f","arguments":"{\"a\": 1}"}`,
	`{"id":"fc_2","type":"function_call","status":"completed","call_id":"c2","name":"g","arguments":"{}"}`,
}

// summarised is an envelope with a summary.
var summarised = dialect.Seal(chat.TextPart("half of it is done"))

const usage = `{"input_tokens":10,"input_tokens_details":{"cached_tokens":4},"output_tokens":5,"output_tokens_details":{"reasoning_tokens":2},"total_tokens":15}`

// whole is an answer in a state.
func whole(status, items, usage string) string {
	return `{"id":"resp_1","object":"response","created_at":1700000000,"status":"` + status + `","error":null,"incomplete_details":null,"model":"m","output":[` +
		items + `],"parallel_tool_calls":true,"tool_choice":"auto","tools":[],"usage":` + usage + `}`
}

// stream is the answer as events, with pieces of so many bytes; repeats means that the last event repeats the items.
func stream(size int, repeats bool) string {
	var b strings.Builder
	sequence := 0
	event := func(kind, members string) {
		fmt.Fprintf(&b, "event: %s\ndata: {\"type\":%q,\"sequence_number\":%d,%s}\n\n", kind, kind, sequence, members)
		sequence++
	}
	begin := func(place int, item string) {
		event("response.output_item.added", fmt.Sprintf(`"output_index":%d,"item":%s`, place, item))
	}
	grow := func(kind, text, place string) {
		for text != "" {
			n := min(size, len(text))
			piece, _ := json.Marshal(text[:n])
			event(kind, place+`,"delta":`+string(piece))
			text = text[n:]
		}
	}
	end := func(place int) {
		event("response.output_item.done", fmt.Sprintf(`"output_index":%d,"item":%s`, place, items[place]))
	}
	event("response.created", `"response":`+whole("in_progress", "", "null"))
	event("response.in_progress", `"response":`+whole("in_progress", "", "null"))
	begin(0, `{"id":"rs_1","type":"reasoning","summary":[]}`)
	grow("response.reasoning_summary_text.delta", "Adds.", `"item_id":"rs_1","output_index":0,"summary_index":0`)
	grow("response.reasoning_summary_text.delta", "Checks.", `"item_id":"rs_1","output_index":0,"summary_index":1`)
	end(0)
	begin(1, `{"id":"msg_1","type":"message","role":"assistant","status":"in_progress","content":[],"phase":"commentary"}`)
	event("response.content_part.added", `"item_id":"msg_1","output_index":1,"content_index":0,"part":{"type":"output_text","text":"","annotations":[]}`)
	grow("response.output_text.delta", "Some text.", `"item_id":"msg_1","output_index":1,"content_index":0`)
	event("response.output_text.done", `"item_id":"msg_1","output_index":1,"content_index":0,"text":"Some text."`)
	end(1)
	begin(2, `{"id":"fc_1","type":"function_call","status":"in_progress","call_id":"c1","name":"f","arguments":""}`)
	grow("response.function_call_arguments.delta", `{"a": 1}`, `"item_id":"fc_1","output_index":2`)
	begin(3, `{"id":"fc_2","type":"function_call","status":"in_progress","call_id":"c2","name":"g","arguments":""}`)
	end(2)
	end(3)
	last := ""
	if repeats {
		last = strings.Join(items, ",")
	}
	event("response.completed", `"response":`+whole("completed", last, usage))
	return b.String()
}

// skipping is a stream whose places skip some: some servers count parts over all items, and parts may begin without a
// piece. Of the message only its pieces come.
var skipping = "data: " + strings.Join([]string{
	`{"type":"response.created","response":` + whole("in_progress", "", "null") + `}`,
	`{"type":"response.output_item.added","output_index":1,"item":{"id":"rs_1","type":"reasoning","summary":[]}}`,
	`{"type":"response.reasoning_summary_text.delta","output_index":1,"summary_index":2,"delta":"Adds."}`,
	`{"type":"response.reasoning_summary_text.delta","output_index":1,"summary_index":4,"delta":"Che"}`,
	`{"type":"response.output_item.done","output_index":1,"item":` + items[0] + `}`,
	`{"type":"response.output_item.added","output_index":7,"item":{"id":"msg_1","type":"message","content":[{"type":"output_text","text":""}]}}`,
	`{"type":"response.output_text.delta","output_index":7,"content_index":3,"delta":"Some"}`,
	`{"type":"response.output_text.delta","output_index":7,"content_index":3,"delta":" text."}`,
	`{"type":"response.output_item.added","output_index":5,"item":` + items[3] + `}`,
	`{"type":"response.completed","response":` + whole("completed", "", usage) + `}`,
}, "\n\ndata: ") + "\n\n"

var suite = dialecttest.Harness{
	Codec:           openairesponses.Codec{},
	NoStopSequences: true,
	Requests: []string{
		`{"model":"m","input":[{"type":"compaction","id":"cmp_1","encrypted_content":"c2VhbGVk"},{"role":"user","content":"go on"}]}`,
		`{"model":"m","input":[{"role":"user","content":"q"},{"type":"web_search_call","id":"ws_1","status":"completed","action":{"type":"search","query":"q","sources":[{"type":"url","url":"u"}]}},` +
			`{"type":"code_interpreter_call","code":"1","outputs":[{"type":"logs","logs":"1"},{"type":"image","url":"u"}]},{"type":"mcp_call","id":"mcp_1","server_label":"s","name":"f","arguments":"{}","output":"o","error":"e"},` +
			`{"type":"mcp_list_tools","server_label":"s","tools":[{"name":"f","input_schema":{}}]}],"tool_choice":{"type":"mcp","server_label":"s"},` +
			`"tools":[{"type":"web_search","filters":{"allowed_domains":["a"]},"user_location":{"city":"c"},"search_context_size":"low","external_web_access":false},` +
			`{"type":"code_interpreter","container":{"type":"auto","file_ids":["f"]}},{"type":"mcp","server_label":"s","server_url":"https://s.example","require_approval":"never","allowed_tools":{"tool_names":["f"]}}]}`,
		`{"model":"m","input":"q","instructions":"Be brief.","tool_choice":"auto","text":{"format":{"type":"text"}}}`,
		`{"model":"m","input":[{"role":"user","content":"q"},{"type":"compaction","id":"cmp_1","encrypted_content":"` + summarised + `"},{"type":"compaction_trigger"}]}`,
		`{"model":"m","input":[{"role":"user","content":"q"},` + strings.Join(items, ",") +
			`,{"type":"function_call_output","call_id":"c1","output":[{"type":"input_text","text":"1"}]},{"type":"function_call_output","call_id":"c2","output":"2"}]}`,
	},
	Responses: []string{
		whole("completed", strings.Join(items, ","), usage),
		whole("completed", `{"type":"message","content":[{"type":"refusal","refusal":"no"}]},{"type":"web_search_call","action":{}},{"type":"image_generation_call","result":"aGk="}`, "null"),
		`{"output":[{"type":"reasoning","content":[{"type":"reasoning_text","text":"t"}]}],"model":"m"}`,
	},
	Streams: map[string]dialecttest.Stream{
		"in small pieces": {Events: stream(3, true), Body: whole("completed", strings.Join(items, ","), usage)},
		"in one piece, the last event without items": {Events: stream(1000, false), Body: whole("completed", strings.Join(items, ","), usage)},
		"places that skip": {
			Events: skipping,
			Body:   whole("completed", items[0]+","+items[3]+`,{"id":"msg_1","type":"message","content":[{"type":"output_text","text":"Some text."}]}`, usage),
		},
	},
	Errors: map[string]dialect.Error{
		`{"error":{"message":"m","type":"t","code":"c","param":"input[0]"}}`:                                       {Message: "m", Type: "t", Code: "c", Param: "input[0]"},
		`{"id":"resp_1","status":"failed","error":{"code":"server_error","message":"It broke."}}`:                  {Message: "It broke.", Code: "server_error", Status: 500, ResponseID: "resp_1"},
		`{"id":"resp_1","status":"failed","error":{"code":"rate_limit_exceeded","message":"Slow down."}}`:          {Message: "Slow down.", Code: "rate_limit_exceeded", Status: 429, ResponseID: "resp_1"},
		`{"id":"resp_1","status":"failed","error":{"code":"invalid_base64_image","message":"No image."}}`:          {Message: "No image.", Code: "invalid_base64_image", Status: 400, ResponseID: "resp_1"},
		`{"type":"error","sequence_number":3,"code":"rate_limit_exceeded","message":"Slow down.","param":"tools"}`: {Message: "Slow down.", Code: "rate_limit_exceeded", Param: "tools", Status: 429},
		`{"type":"error","error":{"type":"server_error","code":"server_error","message":"It broke."}}`:             {Message: "It broke.", Type: "server_error", Code: "server_error", Status: 500},
	},
	Malformed: []string{`{"output":7}`, `{"output":[{"content":7}]}`, `{"status":"completed"}`, `{"output":[{"type":7}]}`},
	MalformedEvents: []string{
		`{"type":"response.output_item.added","output_index":-1,"item":{"type":"message"}}`, `{"type":"response.output_item.added","output_index":2000000000,"item":{"type":"message"}}`,
		`{"type":"response.output_item.added","output_index":0}`, `{"type":"response.output_text.delta","output_index":0,"delta":"x"}`, `{"type":"response.completed"}`,
		`{"type":"response.function_call_arguments.delta","output_index":-5,"delta":"x"}`,
		`{"type":"response.output_item.added","output_index":4096,"item":{"type":"message"}}`,
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
