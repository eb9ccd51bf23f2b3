package modelgw_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/config"
	"github.com/evalfleet/evalfleet/services/modelgw"
)

// Names of tools that the client's vendor has and the model's does not are others on their way, in the whole
// conversation, and the client's own in the answer.
func TestToolsHaveTheClientsNamesInAnswers(t *testing.T) {
	t.Parallel()
	const own, sent = "mcp.server:tool-1", "mcp_server_tool-1"
	const call = `"tool_calls":[{"index":0,"id":"c2","type":"function","function":{"name":"` + sent + `","arguments":"{}"}}]`
	v := vendorWith(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.Header.Get("Accept"), "event-stream") {
			says(http.StatusOK, "text/event-stream", "data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\","+call+"}}]}\n\n"+
				"data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"tool_calls\"}]}\n\ndata: [DONE]\n\n")(w, r)
			return
		}
		says(http.StatusOK, "application/json", `{"id":"x","choices":[{"index":0,"finish_reason":"tool_calls","message":{"role":"assistant","content":null,`+call+`}}],
			"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}`)(w, r)
	})
	g := serveWeb(t, v)
	body := `{"contents":[{"role":"user","parts":[{"text":"q"}]},{"role":"model","parts":[{"functionCall":{"id":"c1","name":"` + own + `","args":{}}}]},
		{"role":"user","parts":[{"functionResponse":{"id":"c1","name":"` + own + `","response":{"output":"r"}}}]}],
		"tools":[{"functionDeclarations":[{"name":"` + own + `"},{"name":"other"}]}],
		"toolConfig":{"functionCallingConfig":{"mode":"ANY","allowedFunctionNames":["` + own + `"]}}}`
	for _, method := range []string{"generateContent", "streamGenerateContent?alt=sse"} {
		answer := g.post(t, geminiPath+"openai/gpt-4o:"+method, body)
		require.Equal(t, http.StatusOK, answer.StatusCode, method)
		assert.Contains(t, read(t, answer), `"name":"`+own+`"`, method)
		asked := string(<-v.body)
		assert.NotContains(t, asked, own, method)
		assert.Contains(t, asked, `"tool_choice":{"type":"function","function":{"name":"`+sent+`"}}`, method)
		assert.Equal(t, 3, strings.Count(asked, `"name":"`+sent+`"`), "%s: a tool, a choice and a call: %s", method, asked)
	}
}

// Google has shorter names than Anthropic's clients give, and none that begin with a digit.
func TestNamesThatGoogleRefusesAreOthers(t *testing.T) {
	t.Parallel()
	long := "mcp__plugin_everything__" + strings.Repeat("x", 60)
	v := vendorWith(t, func(w http.ResponseWriter, r *http.Request) {
		says(http.StatusOK, "application/json", `{"candidates":[{"content":{"role":"model","parts":[{"functionCall":{"name":"_9","args":{}}}]},"finishReason":"STOP"}]}`)(w, r)
	})
	g := serveWeb(t, nil, func(c *modelgw.Config, _ *modelgw.Deps) {
		c.Google.APIKey, c.Google.BaseURL = config.NewSecret("k"), v.URL
	})
	answer := g.post(t, messagesPath, `{"model":"google/gemini-2.5-flash","max_tokens":100,"messages":[{"role":"user","content":"q"},
		{"role":"assistant","content":[{"type":"tool_use","id":"c1","name":"`+long+`","input":{}}]},
		{"role":"user","content":[{"type":"tool_result","tool_use_id":"c1","content":"r"}]}],
		"tools":[{"name":"9","input_schema":{"type":"object"}},{"name":"`+long+`","input_schema":{"type":"object"}}]}`)
	require.Equal(t, http.StatusOK, answer.StatusCode)
	assert.Contains(t, read(t, answer), `"name":"9"`)
	asked := string(<-v.body)
	assert.Equal(t, 3, strings.Count(asked, `"name":"`+long[:55]+`_`), "a tool, a call and its result: %s", asked)
	assert.NotContains(t, asked, long)
}

// The name of a function is that of the call before a result, or the one that the client gives with the result. Without
// both Google would refuse the request.
func TestAResultWithoutItsCallNeedsANameAtGoogle(t *testing.T) {
	t.Parallel()
	v := vendorWith(t, answers)
	g := serveWeb(t, nil, func(c *modelgw.Config, _ *modelgw.Deps) {
		c.Google.APIKey, c.Google.BaseURL = config.NewSecret("k"), v.URL
	})
	const chatRequest = `{"model":"google/gemini-2.5-flash","messages":[{"role":"system","content":"s"},{"role":"user","content":"add"},{"role":"tool","tool_call_id":"zz","content":"1"`
	answer := g.post(t, chatPath, chatRequest+`,"name":"add"}]}`)
	require.Equal(t, http.StatusOK, answer.StatusCode)
	assert.Contains(t, string(<-v.body), `"functionResponse":{"id":"zz","name":"add",`)
	for path, body := range map[string]string{
		chatPath:      chatRequest + `}]}`,
		responsesPath: `{"model":"google/gemini-2.5-flash","instructions":"s","input":[{"role":"user","content":"add"},{"type":"function_call_output","call_id":"zz","output":"1"}]}`,
	} {
		answer := g.post(t, path, body)
		assert.Equal(t, http.StatusBadRequest, answer.StatusCode, path)
		message, kind, _ := failure(t, answer)
		assert.Contains(t, message, `the result in message 2 of the call "zz", which is not in the conversation`, path)
		assert.Equal(t, "invalid_request_error", kind)
		assert.Empty(t, v.body, path)
	}
}
