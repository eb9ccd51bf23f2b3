package modelgw_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/config"
	"github.com/evalfleet/evalfleet/services/modelgw"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/openaicompat"
)

// thinkers are providers of models that reason, all at one server.
func thinkers(v *vendor) setup {
	return func(c *modelgw.Config, _ *modelgw.Deps) {
		c.Google.APIKey, c.Google.BaseURL = config.NewSecret("k"), v.URL
		account := openaicompat.Account{Account: provider.Account{APIKey: config.NewSecret("k"), BaseURL: v.URL + "/v1"}}
		c.Services = openaicompat.Services{"deepseek": {Account: account}, "vllm": {Account: account}, "together": {Account: account}}
		c.Endpoints.MaxRetries = 0
	}
}

// answers answers in the format of the path.
func answers(w http.ResponseWriter, r *http.Request) {
	body := whole
	if strings.Contains(r.URL.Path, ":generateContent") {
		body = `{"candidates":[{"content":{"role":"model","parts":[{"text":"so"}]},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":1,"candidatesTokenCount":1}}`
	}
	says(http.StatusOK, "application/json", body)(w, r)
}

// reasoning are the members of a request that say how a model is to reason.
func reasoning(t *testing.T, v *vendor) string {
	t.Helper()
	body := <-v.body
	for len(body) == 0 { // A question for the models.
		body = <-v.body
	}
	var sent struct {
		Effort   *string         `json:"reasoning_effort,omitempty"`
		Thinking json.RawMessage `json:"thinking,omitempty"`
		Config   *struct {
			Thinking json.RawMessage `json:"thinkingConfig,omitempty"`
		} `json:"generationConfig,omitempty"`
	}
	require.NoError(t, json.Unmarshal(body, &sent))
	said, err := json.Marshal(sent)
	require.NoError(t, err)
	return string(said)
}

// A client that wants no reasoning gets the least that the model has. Where that is not known nothing is sent, since a
// server might refuse it, and the answer says so.
func TestAWishForNoReasoningReachesModelsOfOtherVendors(t *testing.T) {
	t.Parallel()
	v := vendorWith(t, answers)
	g := serveWeb(t, v, thinkers(v))
	const disabled, budget = `"thinking":{"type":"disabled"}`, `"thinkingConfig":{"thinkingBudget":0}`
	for _, tt := range []struct{ model, options, want, unsent string }{
		{"openai/gpt-5.1", disabled, `{"reasoning_effort":"none"}`, ""},
		{"openai/gpt-5.1", disabled + `,"output_config":{"effort":"high"}`, `{"reasoning_effort":"none"}`, ""},
		{"openai/gpt-5-mini", disabled, `{"reasoning_effort":"minimal"}`, ""},
		{"openai/o3", disabled, `{"reasoning_effort":"low"}`, ""},
		{"openai/gpt-5.2-pro", disabled, `{}`, "thinking"},
		{"openai/gpt-5.1-chat-latest", disabled, `{}`, "thinking"},
		{"openai/gpt-4o", disabled, `{}`, ""},
		{"google/gemini-2.5-flash", disabled, `{"generationConfig":{"thinkingConfig":{"include_thoughts":false,"thinking_budget":0}}}`, ""},
		{"google/gemini-2.5-pro", disabled, `{"generationConfig":{"thinkingConfig":{"include_thoughts":true,"thinking_budget":2048}}}`, ""},
		{"google/gemini-3-flash-preview", disabled, `{"generationConfig":{"thinkingConfig":{"include_thoughts":true,"thinking_level":"MINIMAL"}}}`, ""},
		{"google/gemini-3-pro-preview", disabled, `{"generationConfig":{"thinkingConfig":{"include_thoughts":true,"thinking_level":"LOW"}}}`, ""},
		{"google/gemini-2.0-flash", disabled, `{"generationConfig":{}}`, ""},
		{"deepseek/deepseek-v4", disabled, `{"thinking":{"type":"disabled"}}`, ""},
		{"together/openai/gpt-oss-120b", disabled, `{"reasoning_effort":"low"}`, ""},
		{"vllm/some-model", disabled, `{}`, "thinking"},
		{"openai/gpt-5-mini", budget, `{"reasoning_effort":"minimal"}`, ""},
		{"vllm/some-model", budget, `{}`, "thinkingConfig"},
	} {
		path, body := messagesPath, `{"model":"`+tt.model+`","max_tokens":5000,`+user+`,`+tt.options+`}`
		if tt.options == budget {
			path, body = geminiPath+tt.model+":generateContent", `{"contents":[{"parts":[{"text":"q"}]}],"generationConfig":{`+budget+`}}`
		}
		answer := g.post(t, path, body)
		require.Equal(t, http.StatusOK, answer.StatusCode, "%s: %s", tt.model, read(t, answer))
		assert.Equal(t, tt.want, reasoning(t, v), "%s %s", tt.model, tt.options)
		assert.Equal(t, tt.unsent, answer.Header.Get("Evalfleet-Unsent"), "%s %s", tt.model, tt.options)
	}
}

// OpenAI refuses its search beside the least effort of its first models of the fifth generation. Clients of Anthropic
// search in requests of their own, without reasoning.
func TestASearchWithoutReasoningHasAnEffortThatAllowsIt(t *testing.T) {
	t.Parallel()
	v := vendorWith(t, says(http.StatusOK, "application/json", `{"id":"resp_1","status":"completed","output":[],"usage":{"input_tokens":1,"output_tokens":1,"total_tokens":2}}`))
	g := serveWeb(t, v, throughResponses)
	answer := g.post(t, messagesPath, `{"model":"openai/gpt-5","max_tokens":100,`+user+`,"thinking":{"type":"disabled"},
		"tools":[{"type":"web_search_20250305","name":"web_search"}],"tool_choice":{"type":"tool","name":"web_search"}}`)
	require.Equal(t, http.StatusOK, answer.StatusCode, read(t, answer))
	assert.Contains(t, string(<-v.body), `"effort":"low"`)
}

// A fallback gets an effort that it has too, or none.
func TestAWishForNoReasoningReachesFallbacks(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ model, fallback, want string }{
		{"openai/gpt-5.1", "openai/o3", `{"reasoning_effort":"low"}`},
		{"openai/gpt-5", "google/gemini-2.5-pro", `{"generationConfig":{"thinkingConfig":{"include_thoughts":true,"thinking_budget":2048}}}`},
		{"openai/gpt-5.1", "vllm/some-model", `{}`},
		{"openai/gpt-5.1", "google/gemini-2.5-flash", `{"generationConfig":{"thinkingConfig":{"include_thoughts":false,"thinking_budget":0}}}`},
	} {
		var asked atomic.Bool
		v := vendorWith(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost && !asked.Swap(true) {
				overloaded(w, r)
				return
			}
			answers(w, r)
		})
		g := serveWeb(t, v, thinkers(v), func(c *modelgw.Config, _ *modelgw.Deps) {
			c.Fallbacks = map[string][]string{tt.model: {tt.fallback}}
		})
		answer := g.post(t, messagesPath, `{"model":"`+tt.model+`","max_tokens":5000,`+user+`,"thinking":{"type":"disabled"}}`)
		require.Equal(t, http.StatusOK, answer.StatusCode, "%s: %s", tt.fallback, read(t, answer))
		reasoning(t, v)
		assert.Equal(t, tt.want, reasoning(t, v), "%s then %s", tt.model, tt.fallback)
	}
}
