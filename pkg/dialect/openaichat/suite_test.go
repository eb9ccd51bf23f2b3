package openaichat_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/dialecttest"
	"github.com/evalfleet/evalfleet/pkg/dialect/openaichat"
)

// whole is an answer with all that a stream can carry.
const whole = `{"id": "x", "model": "m", "choices": [
	{"index": 0, "finish_reason": "tool_calls", "message": {"content": "Some text.", "reasoning_content": "Some thought.", "tool_calls": [
		{"index": 0, "id": "c1", "function": {"name": "f", "arguments": "{\"a\": 1}"}}, {"index": 1, "id": "c2", "function": {"name": "g", "arguments": "{}"}}]},
		"logprobs": {"content": [{"token": "a", "logprob": -1}, {"token": "b", "logprob": -2}]}},
	{"index": 1, "finish_reason": "length", "message": {"content": "<think>x</think>y"}}],
	"usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15, "prompt_tokens_details": {"cached_tokens": 4}}}`

// chunks cuts the whole answer into chunks of a stream with pieces of so many bytes.
func chunks(size int) []string {
	chunk := func(index int, rest string) string {
		return fmt.Sprintf(`{"id": "x", "model": "m", "choices": [{"index": %d, %s}]}`, index, rest)
	}
	delta := func(index int, member, text string) (all []string) {
		for text != "" {
			n := min(size, len(text))
			piece, _ := json.Marshal(text[:n])
			all = append(all, chunk(index, fmt.Sprintf(`"delta": {%q: %s}`, member, piece)))
			text = text[n:]
		}
		return all
	}
	all := delta(0, "reasoning_content", "Some thought.")
	all = append(all, delta(1, "content", "<think>x</think>y")...)
	all = append(all, delta(0, "content", "Some text.")...)
	all = append(all,
		chunk(0, `"delta": {"tool_calls": [{"index": 0, "id": "c1", "function": {"name": "f", "arguments": ""}}, {"index": 1, "id": "c2", "function": {"name": "g"}}]}`),
		chunk(0, `"delta": {"tool_calls": [{"index": 0, "function": {"arguments": "{\"a\""}}, {"index": 1, "function": {"arguments": "{}"}}]}`),
		chunk(0, `"delta": {"tool_calls": [{"index": 0, "function": {"arguments": ": 1}"}}]}`),
		chunk(0, `"delta": {}, "logprobs": {"content": [{"token": "a", "logprob": -1}]}`),
		chunk(0, `"delta": {}, "logprobs": {"content": [{"token": "b", "logprob": -2}]}, "finish_reason": "tool_calls"`),
		chunk(1, `"delta": {}, "finish_reason": "length"`),
		`{"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15, "prompt_tokens_details": {"cached_tokens": 4}}}`,
		"[DONE]")
	return all
}

func events(chunks []string) string { return "data: " + strings.Join(chunks, "\n\ndata: ") + "\n\n" }

var suite = dialecttest.Harness{
	Codec: openaichat.Codec{},
	Requests: []string{
		`{"model":"m","messages":[{"role":"user","content":"q"}],"web_search_options":{"search_context_size":"low","user_location":{"type":"approximate","approximate":{"city":"c"}}}}`,
		`{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"x"}]},{"role":"assistant","content":"<think signature=\"s\">a</think>b","tool_calls":[{"id":"c","function":{"name":"f","arguments":"{"}}]}],"tool_choice":"auto","stop":["a"]}`,
		`{"model":"m","messages":[{"role":"user","content":"q"},{"role":"assistant","content":"x","reasoning_details":[{"type":"reasoning.encrypted","data":"x","format":"evalfleet"}]}]}`,
		`{"model":"m","messages":[{"role":"user","content":"q"},{"role":"assistant","content":null,"function_call":{"name":"f","arguments":"{}"}},{"role":"function","name":"f","content":null}],"functions":[{"name":"f"}],"function_call":{"name":"f"}}`,
		`{"model":"m","messages":[{"role":"user","content":"q"}],"functions":[],"function_call":"none"}`,
	},
	Responses: []string{whole, `{"choices": [{"message": {"content": null, "refusal": "no", "reasoning_details": [{"type": "reasoning.text", "text": "t"}]}}]}`, "{\"choices\": [{\"message\": {\"reasoning_details\": [{\"type\": \"\xff\"}]}}]}"},
	Streams: map[string]dialecttest.Stream{
		"two choices, in small pieces": {Events: events(chunks(3)), Body: whole},
		"two choices, in one piece":    {Events: events(chunks(1000)), Body: whole},
	},
	Errors: map[string]dialect.Error{
		`{"error": {"message": "m", "type": "t", "code": "c"}}`:              {Message: "m", Type: "t", Code: "c"},
		`{"error": {"message": "m", "code": 7}}`:                             {Message: "m", Code: "7"},
		`{"error": {"message": "slow down", "code": 429}}`:                   {Message: "slow down", Code: "429", Status: 429},
		`{"error": {"message": "slow down", "code": "rate_limit_exceeded"}}`: {Message: "slow down", Code: "rate_limit_exceeded", Status: 429},
		`{"error": "plain"}`: {Message: "plain"},
		`{"message": "top"}`: {Message: "top"},
		`{"detail": "x"}`:    {Message: `{"detail": "x"}`},
	},
	Malformed: []string{`{"choices": [{}]}`, `{"choices": 7}`, `{"choices": [{"message": {"content": 7}}]}`},
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
