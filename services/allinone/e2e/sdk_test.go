package e2e_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// sdkScript are mockllm's answers to the clients; the vendors' servers below give the same answers.
const sdkScript = `
entries:
- {contains: tool says, in: last, output: {text: it is 3}}
- {contains: add, output: {tool_calls: [{id: call_1, function: add, arguments: {x: 1, y: 2}}]}}
- {contains: look, output: {text: a picture}}
default: {text: hello there}
`

const busyScript = `default: {error: {status: 429, message: slow down}}`

// vendors are servers in the published formats of OpenAI and Anthropic.
type vendors struct {
	t                 *testing.T
	openai, anthropic *httptest.Server
}

func startVendors(t *testing.T) *vendors {
	t.Helper()
	v := &vendors{t: t}
	v.openai = httptest.NewServer(v.serving("Authorization", "Bearer vendor-key", v.chatCompletion))
	v.anthropic = httptest.NewServer(v.serving("X-Api-Key", "vendor-key", v.message))
	t.Cleanup(func() {
		v.openai.Close()
		v.anthropic.Close()
	})
	return v
}

// request is the part of a request that the servers read, which both formats have.
type vendorRequest struct {
	Model     string
	Stream    bool
	Functions []any
	Messages  []struct {
		Role    string
		Content any
	}
}

// serving checks the account's key and passes a request on; requests for an unknown role or a busy model are refused.
func (v *vendors) serving(header, key string, answer func(w http.ResponseWriter, r *vendorRequest, refuse func(int, string))) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("X-Request-Id", "vendors-own")
		w.Header().Set("Request-Id", "vendors-own")
		refuse := func(status int, kind string) {
			w.WriteHeader(status)
			_, _ = fmt.Fprintf(w, `{"type":"error","error":{"type":%q,"message":"no","param":null,"code":null}}`, kind)
		}
		body, err := io.ReadAll(r.Body)
		assert.NoError(v.t, err)
		assert.Equal(v.t, key, r.Header.Get(header))
		var asked vendorRequest
		assert.NoError(v.t, json.Unmarshal(body, &asked), "%s", body)
		assert.NotContains(v.t, asked.Model, "/", "the vendor gets its own name of the model")
		switch {
		case strings.HasSuffix(r.URL.Path, "/count_tokens"):
			_, _ = io.WriteString(w, `{"input_tokens":1}`)
		case asked.Model == "gpt-busy":
			refuse(http.StatusTooManyRequests, "rate_limit_error")
		case asked.Messages[0].Role == "critic":
			refuse(http.StatusBadRequest, "invalid_request_error")
		default:
			answer(w, &asked, refuse)
		}
	})
}

// reply is an answer of a model: a text, or a call of add.
func (r *vendorRequest) reply() (text string, calls bool) {
	last, err := json.Marshal(r.Messages[len(r.Messages)-1])
	switch said := string(last); {
	case err != nil:
		return err.Error(), false
	case strings.Contains(said, "tool says"):
		return "it is 3", false
	case strings.Contains(said, "add"):
		return "", true
	case strings.Contains(said, "look"):
		return "a picture", false
	default:
		return "hello there", false
	}
}

func (v *vendors) chatCompletion(w http.ResponseWriter, r *vendorRequest, _ func(int, string)) {
	const usage = `"usage":{"prompt_tokens":5,"completion_tokens":7,"total_tokens":12}`
	text, calls := r.reply()
	member, stop := fmt.Sprintf(`"content":%q`, text), "stop"
	if calls && len(r.Functions) > 0 {
		member, stop = `"content":null,"function_call":{"name":"add","arguments":"{\"x\":1,\"y\":2}"}`, "function_call"
	} else if calls {
		member, stop = `"content":null,"tool_calls":[{"index":0,"id":"call_1","type":"function","function":{"name":"add","arguments":"{\"x\":1,\"y\":2}"}}]`, "tool_calls"
	}
	if !r.Stream {
		_, _ = fmt.Fprintf(w, `{"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"gpt-4o","choices":[{"index":0,"message":{"role":"assistant",%s},"finish_reason":%q}],%s}`, member, stop, usage)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	chunk := func(rest string) {
		_, _ = fmt.Fprintf(w, "data: {\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"gpt-4o\",%s}\n\n", rest)
		w.(http.Flusher).Flush()
	}
	chunk(`"choices":[{"index":0,"delta":{"role":"assistant",` + member + `},"finish_reason":null}]`)
	chunk(`"choices":[{"index":0,"delta":{},"finish_reason":"` + stop + `"}]`)
	chunk(`"choices":[],` + usage)
	_, _ = io.WriteString(w, "data: [DONE]\n\n")
}

func (v *vendors) message(w http.ResponseWriter, r *vendorRequest, _ func(int, string)) {
	text, calls := r.reply()
	block, delta, stop := fmt.Sprintf(`{"type":"text","text":%q}`, text), fmt.Sprintf(`{"type":"text_delta","text":%q}`, text), "end_turn"
	empty := `{"type":"text","text":""}`
	if calls {
		block, stop = `{"type":"tool_use","id":"call_1","name":"add","input":{"x":1,"y":2}}`, "tool_use"
		empty, delta = `{"type":"tool_use","id":"call_1","name":"add","input":{}}`, `{"type":"input_json_delta","partial_json":"{\"x\":1,\"y\":2}"}`
	}
	const head = `"id":"msg_1","type":"message","role":"assistant","model":"claude-sonnet-4-5"`
	if !r.Stream {
		_, _ = fmt.Fprintf(w, `{%s,"content":[%s],"stop_reason":%q,"stop_sequence":null,"usage":{"input_tokens":5,"output_tokens":7}}`, head, block, stop)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	event := func(kind, rest string) {
		_, _ = fmt.Fprintf(w, "event: %s\ndata: {\"type\":%q%s}\n\n", kind, kind, rest)
		w.(http.Flusher).Flush()
	}
	event("message_start", `,"message":{`+head+`,"content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":5,"output_tokens":1}}`)
	event("content_block_start", `,"index":0,"content_block":`+empty)
	event("content_block_delta", `,"index":0,"delta":`+delta)
	event("content_block_stop", `,"index":0`)
	event("message_delta", `,"delta":{"stop_reason":"`+stop+`","stop_sequence":null},"usage":{"output_tokens":7}`)
	event("message_stop", "")
}

// sdk runs the script with the official clients and returns its output.
func sdk(t *testing.T, h *home, models ...string) map[string]map[string]object {
	t.Helper()
	python, err := filepath.Abs(filepath.Join(repository, ".tools", "venv-sdk", "bin", "python"))
	require.NoError(t, err)
	if !exists(filepath.Join(filepath.Dir(python), "..", "requirements.stamp")) {
		t.Skip("the clients of OpenAI, Anthropic and Google are not there; make setup fetches them")
	}
	c := exec.CommandContext(within(t), python, append([]string{"testdata/sdk.py", "http://" + h.address()}, models...)...)
	c.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "TOKEN=" + h.token()}
	var complaints strings.Builder
	c.Stderr = &complaints
	out, err := c.Output()
	require.NoError(t, err, complaints.String())
	var said map[string]map[string]object
	require.NoError(t, json.Unmarshal(out, &said))
	return said
}

// The vendors' own clients work with every model, of any provider, and cannot distinguish the lanes.
func TestOfficialClientsTalkToAnyModel(t *testing.T) {
	t.Parallel()
	inEachForm(t, func(t *testing.T, f form) {
		v := startVendors(t)
		h := newHome(t, &shipped, f, "EVALFLEET_MODELGW_ENDPOINTS_MAX_RETRIES=0",
			"OPENAI_API_KEY=vendor-key", "OPENAI_BASE_URL="+v.openai.URL+"/v1", "ANTHROPIC_API_KEY=vendor-key", "ANTHROPIC_BASE_URL="+v.anthropic.URL)
		h.configure("modelgw", object{"modelgw": object{"mockllm": object{"scripts": object{"sdk": h.write("sdk.yaml", sdkScript), "gpt-busy": h.write("busy.yaml", busyScript)}}}})
		h.serve()
		models := []string{"openai/gpt-4o", "anthropic/claude-sonnet-4-5", "mockllm/sdk"}
		said := sdk(t, h, models...)
		for _, model := range models {
			assert.Equal(t, object{
				"text": []any{"hello there", "stop", true}, "stream": []any{"hello there", "stop", true},
				"tools":          []any{"tool_calls", "add", object{"x": 1.0, "y": 2.0}, "it is 3"},
				"streamed tools": []any{"tool_calls", object{"x": 1.0, "y": 2.0}},
				"functions":      []any{"function_call", "add", object{"x": 1.0, "y": 2.0}, nil, "it is 3"},

				"streamed functions": []any{"function_call", "add", object{"x": 1.0, "y": 2.0}},

				"image": "a picture", "listed": true,
				"401": []any{"AuthenticationError", 401.0, "invalid_request_error", true},
				"404": []any{"NotFoundError", 404.0, "invalid_request_error", true},
				"400": []any{"BadRequestError", 400.0, "invalid_request_error", true},
				"429": []any{"RateLimitError", 429.0, "rate_limit_error", true},
			}, said["openai"][model], "OpenAI's client, %s", model)
			assert.Equal(t, object{
				"text": []any{"hello there", "end_turn", true}, "stream": []any{"hello there", "end_turn", true},
				"tools":          []any{"tool_use", "add", object{"x": 1.0, "y": 2.0}, "it is 3"},
				"streamed tools": []any{"tool_use", object{"x": 1.0, "y": 2.0}},
				"image":          "a picture", "count": true, "listed": true,
				"401": []any{"AuthenticationError", 401.0, "authentication_error", true},
				"404": []any{"NotFoundError", 404.0, "not_found_error", true},
				"400": []any{"BadRequestError", 400.0, "invalid_request_error", true},
				"429": []any{"RateLimitError", 429.0, "rate_limit_error", true},
			}, said["anthropic"][model], "Anthropic's client, %s", model)
			assert.Equal(t, object{
				"text": []any{"hello there", "completed", true}, "stream": []any{"hello there", "completed", true},
				"tools":          []any{"add", object{"x": 1.0, "y": 2.0}, "it is 3"},
				"streamed tools": object{"x": 1.0, "y": 2.0}, "image": "a picture", "count": true,
				"compacted":            []any{"response.compaction", []any{"message", "compaction"}, true, "hello there"},
				"compacted by an item": []any{[]any{"compaction"}, "completed", true, "hello there"},

				"404":    []any{"NotFoundError", 404.0, "invalid_request_error", true},
				"400":    []any{"BadRequestError", 400.0, "invalid_request_error", true},
				"429":    []any{"RateLimitError", 429.0, "rate_limit_error", true},
				"stored": []any{"BadRequestError", 400.0, "invalid_request_error", true},
			}, said["responses"][model], "OpenAI's client with the Responses API, %s", model)
			assert.Equal(t, object{
				"text": []any{"hello there", "STOP", true}, "stream": []any{"hello there", "STOP", true},
				"tools": []any{"add", object{"x": 1.0, "y": 2.0}, "it is 3"},
				"image": "a picture", "count": true, "listed": true,
				"401": []any{401.0, "UNAUTHENTICATED"}, "404": []any{404.0, "NOT_FOUND"}, "429": []any{429.0, "RESOURCE_EXHAUSTED"},
			}, said["google"][model], "Google's client, %s", model)
		}
	})
}
