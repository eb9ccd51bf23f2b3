package mistralchat_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/dialecttest"
	"github.com/evalfleet/evalfleet/pkg/dialect/mistralchat"
)

const usage = `{"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15, "prompt_tokens_details": {"cached_tokens": 4}}`

// whole is an answer with all that a stream can carry.
const whole = `{"id": "x", "object": "chat.completion", "created": 1700000000, "model": "m", "choices": [
	{"index": 0, "finish_reason": "tool_calls", "message": {"role": "assistant", "content": [
		{"type": "thinking", "thinking": [{"type": "text", "text": "Some thought."}]}, {"type": "text", "text": "Some text."}], "tool_calls": [
		{"index": 0, "id": "c1", "type": "function", "function": {"name": "f", "arguments": "{\"a\": 1}"}},
		{"index": 1, "id": "c2", "type": "function", "function": {"name": "g", "arguments": {}}}]}},
	{"index": 1, "finish_reason": "length", "message": {"role": "assistant", "content": "<think>x</think>y"}}], "usage": ` + usage + `}`

// chunks cuts the whole answer into chunks of a stream with pieces of so many bytes.
func chunks(size int) []string {
	chunk := func(index int, delta, more string) string {
		return fmt.Sprintf(`{"id": "x", "object": "chat.completion.chunk", "created": 1700000000, "model": "m", "choices": [{"index": %d, "delta": %s, %s}]}`, index, delta, more)
	}
	grow := func(index int, text, form string) (all []string) {
		for text != "" {
			n := min(size, len(text))
			piece, _ := json.Marshal(text[:n])
			all = append(all, chunk(index, `{"content": `+fmt.Sprintf(form, piece)+`}`, `"finish_reason": null`))
			text = text[n:]
		}
		return all
	}
	all := []string{chunk(0, `{"role": "assistant", "content": ""}`, `"finish_reason": null`)}
	all = append(all, grow(0, "Some thought.", `[{"type": "thinking", "thinking": [{"type": "text", "text": %s}]}]`)...)
	all = append(all, grow(1, "<think>x</think>y", "%s")...)
	all = append(all, grow(0, "Some text.", "%s")...)
	return append(all,
		chunk(0, `{"content": "", "tool_calls": [{"id": "c1", "function": {"name": "f", "arguments": "{\"a\""}, "index": 0}]}`, `"finish_reason": null`),
		chunk(0, `{"tool_calls": [{"id": "null", "function": {"name": "", "arguments": ": 1}"}, "index": 0}, {"id": "c2", "function": {"name": "g", "arguments": "{}"}, "index": 1}]}`, `"finish_reason": "tool_calls"`),
		chunk(1, `{"content": ""}`, `"finish_reason": "length"`),
		`{"id": "x", "model": "m", "choices": [], "usage": `+usage+`}`,
		"[DONE]")
}

func events(chunks []string) string { return "data: " + strings.Join(chunks, "\n\ndata: ") + "\n\n" }

var suite = dialecttest.Harness{
	Codec: mistralchat.Codec{}, NoCacheWrites: true, NoReasoningTokens: true,
	Requests: []string{
		`{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"x"},{"type":"image_url","image_url":"data:image/png;base64,aGk="}]},` +
			`{"role":"assistant","content":[{"type":"thinking","thinking":[{"type":"text","text":"a"}]},{"type":"text","text":"b"}],"prefix":true,` +
			`"tool_calls":[{"id":"c","function":{"name":"f","arguments":{}}}]},{"role":"tool","name":"f","tool_call_id":"c","content":[{"type":"text","text":"1"}]}],"tool_choice":"any","stop":"a"}`,
		`{"model":"m","messages":[{"role":"user","content":[{"type":"document_url","document_url":"data:application/pdf;base64,aGk=","document_name":"a.pdf"}]},` +
			`{"role":"assistant","content":null,"tool_calls":null}],"response_format":{"type":"text"},"random_seed":7}`,
	},
	Responses: []string{
		whole,
		`{"id":"x","model":"m","choices":[{"message":{"content":[{"type":"text","text":"<think>a</think>b"},{"type":"tool_reference","tool":"web_search","title":"T","url":"u"},` +
			`{"type":"image_url","image_url":{"url":"data:image/png;base64,aGk=","detail":"low"}},{"type":"image_url","image_url":"https://x"},{"type":"file","file_id":"f"},{"type":"of_tomorrow"}]},"finish_reason":"error"}]}`,
		`{"choices":[]}`,
	},
	Streams: map[string]dialecttest.Stream{
		"two choices, in small pieces": {Events: events(chunks(3)), Body: whole},
		"two choices, in one piece":    {Events: events(chunks(1000)), Body: whole},
	},
	Errors: map[string]dialect.Error{
		`{"object":"error","message":"m","type":"invalid_request_error","param":null,"code":"3000"}`:        {Message: "m", Type: "invalid_request_error", Code: "3000"},
		`{"object":"error","message":"m","type":"service_tier_capacity_exceeded","code":"3505"}`:            {Message: "m", Type: "service_tier_capacity_exceeded", Code: "3505", Status: 429},
		`{"object":"error","message":"m","type":"rate_limited","code":"1300","raw_status_code":429}`:        {Message: "m", Type: "rate_limited", Code: "1300", Status: 429},
		`{"object":"error","message":{"detail":[{"msg":"bad"}]},"type":"invalid_request_error"}`:            {Message: `{"detail":[{"msg":"bad"}]}`, Type: "invalid_request_error"},
		`{"object":"error","message":"m","type":"unreachable_backend","code":"1901","raw_status_code":503}`: {Message: "m", Type: "unreachable_backend", Code: "1901", Status: 503},
		`{"error":{"message":"m","type":"t","code":429}}`:                                                   {Message: "m", Type: "t", Code: "429", Status: 429},
		`{"detail":[{"loc":["body"],"msg":"bad"}]}`:                                                         {Message: `[{"loc":["body"],"msg":"bad"}]`},
		`{"detail":"Unauthorized"}`:                       {Message: "Unauthorized"},
		`{"message":"no Route matched","request_id":"r"}`: {Message: "no Route matched"},
		`{"other": "x"}`:                                  {Message: `{"other": "x"}`},
	},
	Malformed: []string{
		`{"choices": [{}]}`, `{"choices": 7}`, `{"choices": [{"message": {"content": 7}}]}`, `{"choices": [{"message": {"content": ["x"]}}]}`,
		`{"error": {"message": "m", "code": 502}}`,
	},
	MalformedEvents: []string{
		`{"choices": [{"index": -1}]}`, `{"choices": [{"index": 2000000000}]}`, `{"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 2000000000}]}}]}`,
		`{"choices": [{"index": 0, "delta": {"tool_calls": [{"index": -5}]}}]}`,
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
