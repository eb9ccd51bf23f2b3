package openai_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/chat"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/providertest"
)

const byResponses = `{"responses_api": true}`

// scripted is a server that answers each request as a function says, and the bodies that it received.
func scripted(t *testing.T, answer func(body string) (status int, document string)) (url string, received func() []string) {
	t.Helper()
	var mu sync.Mutex
	var bodies []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		assert.Equal(t, "/v1/responses", r.URL.Path)
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		bodies = append(bodies, string(body))
		mu.Unlock()
		status, document := answer(string(body))
		kind := "application/json"
		if strings.HasPrefix(document, "data:") {
			kind = "text/event-stream"
		}
		w.Header().Set("Content-Type", kind)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, document)
	}))
	t.Cleanup(server.Close)
	return server.URL + "/v1", func() []string {
		mu.Lock()
		defer mu.Unlock()
		return bodies
	}
}

const answered = `{"id":"resp_1","status":"completed","model":"gpt-5-2026","output":[
	{"id":"msg_1","type":"message","role":"assistant","content":[{"type":"output_text","text":"fine","annotations":[]}]}],"usage":{"input_tokens":1,"output_tokens":1,"total_tokens":2}}`

// An organization that OpenAI has not verified may neither stream nor see summaries. That is found out once.
func TestWhatNeedsAVerifiedOrganizationIsLeftOut(t *testing.T) {
	t.Parallel()
	refusal := func(param string) (int, string) {
		return http.StatusBadRequest, `{"error":{"message":"Your organization must be verified.","type":"invalid_request_error","param":"` + param + `","code":"unsupported_value"}}`
	}
	url, received := scripted(t, func(body string) (int, string) {
		switch {
		case strings.Contains(body, `"stream":true`):
			return refusal("stream")
		case strings.Contains(body, `"summary"`):
			return refusal("reasoning.summary")
		default:
			return http.StatusOK, answered
		}
	})
	p := openAt(t, url, "gpt-5", byResponses)
	ask := func(c *modelv1.GenerateConfig) error {
		_, err := p.Generate(t.Context(), &provider.Request{Messages: []*modelv1.ChatMessage{chat.User("q")}, Config: c, Stream: func(*modelv1.GenerateDelta) {}})
		return err
	}
	require.NoError(t, ask(&modelv1.GenerateConfig{}))
	assert.Len(t, received(), 3)
	require.NoError(t, ask(&modelv1.GenerateConfig{}))
	assert.Len(t, received(), 4, "what is known is not asked for again")
	unsent := provider.Fit(p, &modelv1.GenerateConfig{StreamIdleTimeout: new(5.0)}).Unsent
	assert.Len(t, unsent, 1, "whole answers have no pieces to wait for")
	err := ask(&modelv1.GenerateConfig{ReasoningSummary: new("detailed")})
	failure, ok := provider.As(err)
	require.True(t, ok, "a summary that is asked for is not left out")
	assert.Equal(t, http.StatusBadRequest, failure.Status)
	assert.Len(t, received(), 5)

	asked := openAt(t, url, "gpt-5", `{"responses_api": true, "streaming": true}`)
	_, err = asked.Generate(t.Context(), &provider.Request{Messages: []*modelv1.ChatMessage{chat.User("q")}})
	require.NoError(t, err)
	unsent = provider.Fit(asked, &modelv1.GenerateConfig{}).Unsent
	require.Len(t, unsent, 1, "a stream that is asked for is left out, which is said")
	assert.Equal(t, provider.ModelArgument+"streaming", unsent[0].Option)
}

// Waiting does not restore a quota, however it is said that it is used up.
func TestAQuotaThatIsSpentIsNotAskedForAgain(t *testing.T) {
	t.Parallel()
	const failed = `{"id":"resp_1","status":"failed","output":[],"error":{"code":"insufficient_quota","message":"Pay first."}}`
	for document, want := range map[string]int{
		failed: 429, `data: {"type":"response.failed","response":` + failed + "}\n\n": 429,
		`data: {"type":"error","code":"insufficient_quota","message":"Pay first."}` + "\n\n":           429,
		`data: {"type":"error","error":{"type":"insufficient_quota","message":"Pay first."}}` + "\n\n": 200,
	} {
		url, _ := scripted(t, func(string) (int, string) { return http.StatusOK, document })
		_, err := openAt(t, url, "gpt-5", `{"responses_api": true, "streaming": true}`).Generate(t.Context(), &provider.Request{Messages: []*modelv1.ChatMessage{chat.User("q")}})
		failure, ok := provider.As(err)
		require.True(t, ok, "%v", err)
		assert.Equal(t, []any{provider.Final, want}, []any{failure.Class, failure.Status}, document)
	}
}

// Models take a tool named python for one of the server's own. Nothing of that is seen outside.
func TestAToolNamedPython(t *testing.T) {
	t.Parallel()
	p := openAt(t, providertest.ResponsesServer(t, providertest.Answer{Function: "python_exec", Arguments: "print(1)"}), "gpt-5", byResponses)
	history := chat.Assistant("", chat.Call("c1", "python", `{"code":"2"}`))
	request := &provider.Request{
		Messages: []*modelv1.ChatMessage{
			chat.User("q"), history, chat.ToolMessage(&toolv1.ToolResult{CallId: "c1", Function: "python", Content: chat.TextContent("2")}),
		},
		Tools: []*toolv1.ToolInfo{{
			Name: "python", Description: "Runs code.", ParametersJson: `{"type":"object","properties":{"code":{"type":"string"}}}`,
		}},
		ToolChoice: chat.FunctionChoice("python"), Config: &modelv1.GenerateConfig{}, Record: provider.RecordAll,
	}
	var streamed string
	request.Stream = func(d *modelv1.GenerateDelta) { streamed += d.GetToolCall().GetFunction() }
	response, err := p.Generate(t.Context(), request)
	require.NoError(t, err)
	assert.Equal(t, 3, strings.Count(response.Call.GetRequestJson(), `"python_exec"`), response.Call.GetRequestJson())
	assert.NotContains(t, response.Call.GetRequestJson(), `"python"`)
	call := chat.FirstMessage(response.Output).GetToolCalls()[0]
	assert.Equal(t, []string{"python", `{"code":"print(1)"}`}, []string{call.GetFunction(), call.GetArgumentsJson()})
	assert.Equal(t, "python", streamed)
	assert.Equal(t, []string{"python", "python"}, []string{history.GetToolCalls()[0].GetFunction(), request.Tools[0].GetName()}, "the request is not changed")
}

// Two tools never have one name: a call would be taken for one of the other.
func TestAToolNamedPythonBesideOneOfItsOtherName(t *testing.T) {
	t.Parallel()
	p := openAt(t, providertest.ResponsesServer(t, providertest.Answer{Function: "python_exec", Arguments: "{}"}), "gpt-5", byResponses)
	schema := `{"type":"object"}`
	response, err := p.Generate(t.Context(), &provider.Request{
		Messages: []*modelv1.ChatMessage{chat.User("q")}, Config: &modelv1.GenerateConfig{}, Record: provider.RecordAll,
		Tools: []*toolv1.ToolInfo{{Name: "python", ParametersJson: schema}, {Name: "python_exec", ParametersJson: schema}},
	})
	require.NoError(t, err)
	assert.Equal(t, 1, strings.Count(response.Call.GetRequestJson(), `"python_exec"`), response.Call.GetRequestJson())
	assert.Equal(t, "python_exec", chat.FirstMessage(response.Output).GetToolCalls()[0].GetFunction())
}

// Sealed reasoning goes back as it came, with its id.
func TestReasoningGoesBack(t *testing.T) {
	t.Parallel()
	url, received := scripted(t, func(string) (int, string) {
		return http.StatusOK, `{"id":"resp_1","status":"completed","model":"m","output":[
			{"id":"rs_1","type":"reasoning","summary":[{"type":"summary_text","text":"Adds."}],"encrypted_content":"c2VhbGVk"},
			{"id":"msg_1","type":"message","role":"assistant","content":[{"type":"output_text","text":"Four.","annotations":[]}],"phase":"final_answer"}]}`
	})
	p := openAt(t, url, "gpt-5", byResponses)
	messages := []*modelv1.ChatMessage{chat.User("q")}
	response, err := p.Generate(t.Context(), &provider.Request{Messages: messages, Config: &modelv1.GenerateConfig{}})
	require.NoError(t, err)
	messages = append(messages, chat.FirstMessage(response.Output), chat.User("Sure?"))
	_, err = p.Generate(t.Context(), &provider.Request{Messages: messages, Config: &modelv1.GenerateConfig{}})
	require.NoError(t, err)
	var sent struct {
		Input   []map[string]any `json:"input"`
		Include []string         `json:"include"`
		Store   *bool            `json:"store"`
	}
	require.NoError(t, json.Unmarshal([]byte(received()[1]), &sent))
	require.Len(t, sent.Input, 4)
	assert.Equal(t, []any{"reasoning", "rs_1", "c2VhbGVk"}, []any{sent.Input[1]["type"], sent.Input[1]["id"], sent.Input[1]["encrypted_content"]})
	assert.Equal(t, []any{"assistant", "final_answer"}, []any{sent.Input[2]["role"], sent.Input[2]["phase"]})
	assert.Equal(t, []string{"reasoning.encrypted_content"}, sent.Include)
	assert.Equal(t, new(false), sent.Store)
}

// Metadata reaches a server that does not store the answer; other members of extra_body that the API lacks do not.
func TestMembersOfExtraBody(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		byResponses: `"store":false,"metadata":{"a":"b"}`, `{"responses_api": true, "responses_store": true}`: `"truncation":"auto"`,
	} {
		url, received := scripted(t, func(string) (int, string) { return http.StatusOK, answered })
		config := &modelv1.GenerateConfig{ExtraBodyJson: new(`{"metadata":{"a":"b"},"truncation":"auto","own":7}`)}
		_, err := openAt(t, url, "gpt-4o", args).Generate(t.Context(), &provider.Request{Messages: []*modelv1.ChatMessage{chat.User("q")}, Config: config})
		require.NoError(t, err)
		body := received()[0]
		assert.Contains(t, body, want)
		assert.NotContains(t, body, `"own"`)
		assert.Equal(t, args == byResponses, strings.Contains(body, "metadata"))
	}
}

// Every option that the API has for a model is in the request.
func TestOptionsReachARequestOfTheResponsesAPI(t *testing.T) {
	t.Parallel()
	const shared = `"input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "q"}]}], "store": false, "max_output_tokens": 100,
		"tools": [{"type": "function", "name": "f", "description": "F.", "parameters": {"type": "object"}, "strict": false}],
		"tool_choice": {"type": "function", "name": "f"}, "service_tier": "flex"`
	const options = `{"max_tokens": 100, "temperature": 0.5, "top_p": 0.9, "logprobs": true, "top_logprobs": 2, "parallel_tool_calls": false, "verbosity": "low",
		"reasoning_effort": "max", "reasoning_mode": "pro", "reasoning_summary": "SUMMARY", "extra_body": {"service_tier": "flex"},
		"response_schema": {"name": "s", "json_schema": {"type": "object"}, "strict": true},
		"stop_seqs": ["END"], "frequency_penalty": 0.1, "presence_penalty": 0.2, "logit_bias": {"42": 10.0}, "seed": 7, "num_choices": 2}`
	const text = `"text": {"verbosity": "low", "format": {"type": "json_schema", "name": "s", "description": "s", "schema": {"type": "object"}, "strict": true}}`
	for model, own := range map[string]string{
		"gpt-4o": `"temperature": 0.5, "top_p": 0.9, "top_logprobs": 2, "include": ["message.output_text.logprobs"], "parallel_tool_calls": false`,
		"o3":     `"background": true, "reasoning": {"effort": "xhigh", "mode": "pro", "summary": "SUMMARY"}, "include": ["reasoning.encrypted_content"]`,
		"gpt-5.4": `"background": true, "reasoning": {"effort": "xhigh", "mode": "pro", "summary": "SUMMARY"}, "include": ["reasoning.encrypted_content"],
			"parallel_tool_calls": false`,
		"gpt-5-chat-latest": `"temperature": 0.5, "top_p": 0.9, "top_logprobs": 2, "include": ["message.output_text.logprobs"], "parallel_tool_calls": false`,
		"codex-mini-latest": `"background": true, "reasoning": {"effort": "xhigh", "mode": "pro", "summary": "SUMMARY"}, "include": ["reasoning.encrypted_content"],
			"parallel_tool_calls": false`,
		"gpt-5.6": `"background": true, "reasoning": {"effort": "max", "mode": "pro", "summary": "SUMMARY"}, "include": ["reasoning.encrypted_content"],
			"parallel_tool_calls": false`,
	} {
		for _, summary := range []string{"auto", "concise", "detailed"} {
			config, err := chat.ParseConfig([]byte(strings.ReplaceAll(options, "SUMMARY", summary)))
			require.NoError(t, err)
			url, received := scripted(t, func(string) (int, string) { return http.StatusOK, answered })
			_, err = openAt(t, url, model, byResponses).Generate(t.Context(), &provider.Request{
				Messages: []*modelv1.ChatMessage{chat.User("q")}, Config: config, ToolChoice: chat.FunctionChoice("f"),
				Tools: []*toolv1.ToolInfo{{Name: "f", Description: "F.", ParametersJson: `{"type":"object"}`}},
			})
			require.NoError(t, err)
			want := `{"model": "` + model + `", ` + shared + ", " + text + ", " + strings.ReplaceAll(own, "SUMMARY", summary) + "}"
			assert.JSONEq(t, want, received()[0], model)
		}
	}
}
