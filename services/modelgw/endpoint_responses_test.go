package modelgw_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/config"
	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/services/modelgw"
)

const responsesPath = "/v1/responses"

// throughResponses asks OpenAI's models by the Responses API.
func throughResponses(c *modelgw.Config, _ *modelgw.Deps) { c.OpenAI.ResponsesAPI = new(true) }

func TestResponsesGoThroughUntouched(t *testing.T) {
	t.Parallel()
	const answered = `{"id":"resp_9","status":"completed",  "output":[],"usage":{"input_tokens":5,"output_tokens":2,"total_tokens":7},"new":1.0}`
	v := vendorWith(t, says(http.StatusOK, "application/json", answered))
	g := serveWeb(t, v, throughResponses)
	body := `{"input":"\u00e9", "model":"openai/gpt-5" ,"previous_response_id":"resp_8","tools":[{"type":"web_search"}],"new":{"model":"x"}}`
	assert.Equal(t, answered, read(t, g.post(t, responsesPath, body, "Openai-Beta", "responses=v1")))
	assert.Equal(t, strings.Replace(body, "openai/", "", 1), string(waittest.For(t, v.body, "the body that reaches the vendor")))
	asked := waittest.For(t, v.asked, "the request that reaches the vendor")
	assert.Equal(t, responsesPath, asked.URL.String())
	assert.Equal(t, "Bearer vendor-key", asked.Header.Get("Authorization"))
	assert.Equal(t, "responses=v1", asked.Header.Get("Openai-Beta"))
	assert.Equal(t, int64(7), g.spent(t))
}

func TestTokensOfResponsesAreCountedByTheVendorOrEstimated(t *testing.T) {
	t.Parallel()
	const path = responsesPath + "/input_tokens"
	const counted = `{"object":"response.input_tokens","input_tokens": 42}`
	v := vendorWith(t, says(http.StatusOK, "application/json", counted))
	g := serveWeb(t, v, throughResponses)
	assert.Equal(t, counted, read(t, g.post(t, path, `{"model":"openai/gpt-5","input":"q"}`)))
	assert.Equal(t, path, waittest.For(t, v.asked, "the request that reaches the vendor").URL.Path)
	question := `{"model":"mockllm/m","input":[{"role":"user","content":"hello"},{"role":"user","content":"world"}]}`
	assert.JSONEq(t, `{"object":"response.input_tokens","input_tokens":3}`, read(t, g.post(t, path, question)))
	assert.Zero(t, g.spent(t), "counting costs nothing")
}

// A server of the Responses API need not count.
func TestTokensOfResponsesAreEstimatedWhereTheServerCountsNone(t *testing.T) {
	t.Parallel()
	const path = responsesPath + "/input_tokens"
	const question = `,"input":[{"role":"user","content":"hello"},{"role":"user","content":"world"}]}`
	v := vendorWith(t, says(http.StatusNotFound, "application/json", `{"detail":"Not Found"}`))
	g := serveWeb(t, v, throughResponses)
	answer := g.post(t, path, `{"model":"openai/gpt-5"`+question)
	assert.Equal(t, http.StatusOK, answer.StatusCode)
	assert.JSONEq(t, `{"object":"response.input_tokens","input_tokens":3}`, read(t, answer))

	lost := `{"error":{"message":"no such model","type":"invalid_request_error","param":null,"code":"model_not_found"}}`
	g = serveWeb(t, vendorWith(t, says(http.StatusNotFound, "application/json", lost)), throughResponses)
	answer = g.post(t, path, `{"model":"openai/gpt-5"`+question)
	assert.Equal(t, http.StatusNotFound, answer.StatusCode)
	assert.Equal(t, lost, read(t, answer))
}

func TestAStreamOfResponsesIsCounted(t *testing.T) {
	t.Parallel()
	const stream = "event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"id\":\"resp_1\",\"status\":\"in_progress\"}}\n\n" +
		"event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"delta\":\"a\"}\n\n" +
		"event: response.completed\ndata: {\"type\":\"response.completed\",\"response\":{\"id\":\"resp_1\",\"status\":\"completed\",\"usage\":{\"input_tokens\":5,\"output_tokens\":9,\"total_tokens\":14}}}\n\n"
	v := vendorWith(t, says(http.StatusOK, "text/event-stream", stream))
	g := serveWeb(t, v, throughResponses)
	assert.Equal(t, stream, read(t, g.post(t, responsesPath, `{"model":"openai/gpt-5","stream":true,"input":"q"}`)))
	require.Eventually(t, func() bool { return g.spent(t) == 14 }, waitLimit, tick, "the call is settled")
}

// wireItem is an item of an answer.
type wireItem struct {
	Type, Name, Namespace, Input, Arguments string
	CallID                                  string `json:"call_id"`
	Content                                 []struct{ Text string }
}

// A client whose tools have namespaces or take texts talks to a model that knows neither, and gets its calls as it
// named the tools.
func TestToolsOfOtherKindsReachAnyModel(t *testing.T) {
	t.Parallel()
	const calls = `{"id":"c1","type":"function","function":{"name":"echo","arguments":"{\"x\": 1}"}},
		{"id":"c2","type":"function","function":{"name":"exec","arguments":"{\"input\": \"a \\\"b\\\"\"}"}},
		{"id":"c3","type":"function","function":{"name":"other__echo","arguments":"{}"}}`
	v := vendorWith(t, says(http.StatusOK, "application/json", `{"id":"x","choices":[{"finish_reason":"tool_calls","message":{"role":"assistant","tool_calls":[`+calls+`]}}],
		"usage":{"prompt_tokens":5,"completion_tokens":2,"total_tokens":7}}`))
	g := serveWeb(t, v)
	const question = `{"model":"openai/gpt-4o","input":[
		{"type":"additional_tools","role":"developer","tools":[{"type":"namespace","name":"functions","tools":[
			{"type":"custom","name":"exec","description":"Runs.","format":{"type":"grammar","syntax":"lark","definition":"start: /.+/"}}]}]},
		{"role":"user","content":[{"type":"input_text","text":"q"}]},
		{"type":"custom_tool_call","call_id":"c0","namespace":"functions","name":"exec","input":"ls"},
		{"type":"custom_tool_call_output","call_id":"c0","output":[{"type":"input_text","text":"file"}]},
		{"type":"function_call","call_id":"d0","namespace":"other","name":"echo","arguments":"{}"},
		{"type":"function_call_output","call_id":"d0","output":"none"}],
		"tools":[{"type":"web_search"},{"type":"namespace","name":"mcp__a","tools":[{"type":"function","name":"echo","parameters":{"type":"object"}}]},
			{"type":"namespace","name":"other","tools":[{"type":"function","name":"echo","parameters":{"type":"object"}}]}]`
	var said struct {
		Output []wireItem
		Tools  []struct{ Type, Namespace, Name string }
	}
	require.NoError(t, json.Unmarshal([]byte(read(t, g.post(t, responsesPath, question+`}`))), &said))
	assert.Equal(t, []wireItem{
		{Type: "function_call", CallID: "c1", Namespace: "mcp__a", Name: "echo", Arguments: `{"x": 1}`},
		{Type: "custom_tool_call", CallID: "c2", Namespace: "functions", Name: "exec", Input: `a "b"`},
		{Type: "function_call", CallID: "c3", Namespace: "other", Name: "echo", Arguments: `{}`},
	}, said.Output)
	assert.Len(t, said.Tools, 3)

	var asked struct {
		Messages []struct {
			Role      string
			ToolCalls []struct {
				Function struct{ Name, Arguments string }
			} `json:"tool_calls"`
		}
		Tools []struct {
			Function struct{ Name, Description string }
		}
	}
	require.NoError(t, json.Unmarshal(waittest.For(t, v.body, "the body that reaches the vendor"), &asked))
	var names []string
	for _, tool := range asked.Tools {
		names = append(names, tool.Function.Name)
	}
	assert.Equal(t, []string{"echo", "other__echo", "exec"}, names)
	assert.Contains(t, asked.Tools[2].Function.Description, "start: /.+/")
	require.Len(t, asked.Messages, 5)
	require.Len(t, asked.Messages[1].ToolCalls, 1)
	assert.Equal(t, "exec", asked.Messages[1].ToolCalls[0].Function.Name)
	assert.JSONEq(t, `{"input":"ls"}`, asked.Messages[1].ToolCalls[0].Function.Arguments)
	require.Len(t, asked.Messages[3].ToolCalls, 1)
	assert.Equal(t, "other__echo", asked.Messages[3].ToolCalls[0].Function.Name)

	stream := read(t, g.post(t, responsesPath, question+`,"stream":true}`))
	for _, want := range []string{
		`event: response.custom_tool_call_input.delta`, `"delta":"a \"b\""`, `event: response.custom_tool_call_input.done`,
		`event: response.function_call_arguments.done`, `"namespace":"other","name":"echo"`, `event: response.completed`,
	} {
		assert.Contains(t, stream, want)
	}
}

func TestAnyModelStreamsResponses(t *testing.T) {
	t.Parallel()
	g := serveWeb(t, nil)
	stream := read(t, g.post(t, responsesPath, `{"model":"mockllm/model","stream":true,"max_output_tokens":50,"input":"q"}`))
	for _, event := range []string{
		"created", "in_progress", "output_item.added", "content_part.added", "output_text.delta", "output_text.done", "content_part.done", "output_item.done", "completed",
	} {
		assert.Contains(t, stream, "event: response."+event+"\n")
	}
}

// Codex asks over a websocket first; a 426 makes it turn to HTTP for good.
func TestThereAreNoWebsockets(t *testing.T) {
	t.Parallel()
	g := serveWeb(t, nil)
	answer := g.do(t.Context(), t, http.MethodGet, responsesPath, "", "Connection", "Upgrade", "Upgrade", "websocket", "Openai-Beta", "responses_websockets=2026-02-06")
	assert.Equal(t, http.StatusUpgradeRequired, answer.StatusCode)
}

// Codex says how long answers are to be by a table of its own, whatever model its name stands for here.
func TestHowLongCodexWantsAnswersIsLeftOutWhereTheModelDoesNotTakeIt(t *testing.T) {
	t.Parallel()
	v := vendorWith(t, says(http.StatusOK, "application/json", `{"id":"msg_1","content":[{"type":"text","text":"so"}],"stop_reason":"end_turn","usage":{"input_tokens":1,"output_tokens":1}}`))
	g := serveMessages(t, v)
	answer := g.post(t, responsesPath, `{"model":"anthropic/claude-sonnet-4-5","input":"q","text":{"verbosity":"low"}}`)
	assert.Equal(t, http.StatusOK, answer.StatusCode, "%s", read(t, answer))
	assert.Equal(t, "text.verbosity", answer.Header.Get("Evalfleet-Unsent"))
	assert.NotContains(t, string(<-v.body), "verbosity")
}

func TestStoredConversationsAreRefusedByName(t *testing.T) {
	t.Parallel()
	g := serveWeb(t, nil)
	answer := g.post(t, responsesPath, `{"model":"mockllm/model","input":"q","previous_response_id":"resp_1"}`)
	assert.Equal(t, http.StatusBadRequest, answer.StatusCode)
	_, _, code := failure(t, answer)
	assert.Equal(t, "previous_response_not_found", code)
	stored := g.do(t.Context(), t, http.MethodGet, responsesPath+"/resp_1", "")
	assert.Equal(t, http.StatusNotFound, stored.StatusCode)
	message, _, _ := failure(t, stored)
	assert.Contains(t, message, "not stored here")
}

// What OpenAI sealed goes back to OpenAI, and to nobody else.
func TestACompactedConversationGoesBackToItsVendor(t *testing.T) {
	t.Parallel()
	v := vendorWith(t, says(http.StatusOK, "application/json", `{"id":"resp_1","status":"completed","output":[]}`))
	g := serveWeb(t, v, throughResponses, func(c *modelgw.Config, _ *modelgw.Deps) {
		c.Anthropic.APIKey, c.Anthropic.BaseURL = config.NewSecret("k"), v.URL
	})
	const rest = `"input":[{"type":"compaction","id":"cmp_1","encrypted_content":"c2VhbGVk"},{"role":"user","content":"go on"}]}`
	answer := g.post(t, responsesPath, `{"model":"openai/gpt-5",`+rest, "Evalfleet-Cache", "1W")
	require.Equal(t, http.StatusOK, answer.StatusCode)
	assert.Contains(t, string(<-v.body), `{"type":"compaction","id":"cmp_1","encrypted_content":"c2VhbGVk"}`)
	answer = g.post(t, responsesPath, `{"model":"anthropic/claude-opus-4-8","max_output_tokens":50,`+rest)
	assert.Equal(t, http.StatusBadRequest, answer.StatusCode)
	message, _, _ := failure(t, answer)
	assert.Contains(t, message, "data of another provider")
	assert.Empty(t, v.body)
}

// An answer in the background is queued without usage, so that no budget would see it.
func TestNothingIsAnsweredInTheBackground(t *testing.T) {
	t.Parallel()
	v := vendorWith(t, says(http.StatusOK, "application/json", `{"id":"resp_1","status":"completed","output":[]}`))
	g := serveWeb(t, v, throughResponses)
	for value, status := range map[string]int{"true": http.StatusBadRequest, `"yes"`: http.StatusBadRequest, "false": http.StatusOK, "null": http.StatusOK} {
		answer := g.post(t, responsesPath, `{"model":"openai/gpt-5","background":`+value+`,"input":"q"}`)
		assert.Equal(t, status, answer.StatusCode, value)
		if status == http.StatusOK {
			waittest.For(t, v.body, "the request that reaches the vendor")
			continue
		}
		message, _, _ := failure(t, answer)
		assert.Contains(t, message, "background", value)
		assert.Empty(t, v.body, value)
	}
}
