package modelgw_test

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/config"
	"github.com/evalfleet/evalfleet/services/modelgw"
)

// What one vendor's clients may send, others refuse: blank texts, two calls with one id, ids of their own form, calls
// without tools on offer, and a conversation that begins with the model.
func TestAConvertedConversationFollowsTheRulesOfTheVendor(t *testing.T) {
	t.Parallel()
	v := vendorWith(t, func(w http.ResponseWriter, r *http.Request) {
		body := `{"id":"m","type":"message","role":"assistant","model":"m","content":[{"type":"text","text":"so"}],"stop_reason":"end_turn","usage":{"input_tokens":1,"output_tokens":1}}`
		switch {
		case strings.Contains(r.URL.Path, "/converse"):
			body = `{"output":{"message":{"role":"assistant","content":[{"text":"so"}]}},"stopReason":"end_turn","usage":{"inputTokens":1,"outputTokens":1,"totalTokens":2}}`
		case strings.Contains(r.URL.Path, "/chat/completions"):
			body = whole
		case strings.Contains(r.URL.Path, ":generateContent"):
			body = `{"candidates":[{"content":{"role":"model","parts":[{"text":"so"}]},"finishReason":"STOP"}]}`
		}
		says(http.StatusOK, "application/json", body)(w, r)
	})
	g := serveWeb(t, nil, func(c *modelgw.Config, _ *modelgw.Deps) {
		c.Anthropic.APIKey, c.Anthropic.BaseURL = config.NewSecret("k"), v.URL
		c.Bedrock.APIKey, c.Bedrock.BaseURL, c.Bedrock.Region = config.NewSecret("k"), v.URL, "us-east-1"
		c.Mistral.APIKey, c.Mistral.BaseURL, c.Mistral.ConversationAPI = config.NewSecret("k"), v.URL, new(false)
		c.Google.APIKey, c.Google.BaseURL = config.NewSecret("k"), v.URL
	})
	turn := `{"role":"assistant","content":"\n\n","tool_calls":[{"id":"call_0","type":"function","function":{"name":"f","arguments":"{}"}}]},` +
		`{"role":"tool","tool_call_id":"call_0","content":" "}`
	turns := `{"role":"user","content":[{"type":"text","text":"q"},{"type":"text","text":""}]},` + turn + `,` + turn
	ask := func(model, messages string) string {
		answer := g.post(t, chatPath, `{"model":"`+model+`","messages":[`+messages+`]}`)
		require.Equal(t, http.StatusOK, answer.StatusCode, "%s: %s", model, read(t, answer))
		body := <-v.body
		for len(body) == 0 { // A question for the models.
			body = <-v.body
		}
		return string(body)
	}
	blank := regexp.MustCompile(`"text": ?"(\s|\\n)*"`)

	asked := ask("anthropic/claude-3-5-haiku-20241022", turns)
	assert.NotRegexp(t, blank, asked)
	assert.Contains(t, asked, `"id":"call_0_2"`)
	assert.Contains(t, asked, `"tool_use_id":"call_0_2"`)

	asked = ask("bedrock/us.amazon.nova-pro-v1:0", turns)
	assert.NotRegexp(t, blank, asked)
	assert.Contains(t, asked, `"toolUseId":"call_0_2"`)
	assert.Contains(t, asked, `"toolConfig":{"tools":[{"toolSpec":{"name":"no_tool"`)

	asked = ask("mistral/mistral-large-latest", turns)
	for _, id := range regexp.MustCompile(`"(?:tool_call_)?id":"([^"]*)"`).FindAllStringSubmatch(asked, -1) {
		assert.Regexp(t, `^[A-Za-z0-9]{9}$`, id[1])
	}
	assert.Equal(t, 2, strings.Count(asked, `"tool_call_id":`), asked)

	for _, model := range []string{"bedrock/us.amazon.nova-pro-v1:0", "google/gemini-2.0-flash"} {
		assert.Regexp(t, `"role":"user",[^{]*\{"text":"\(no content\)"\}.*"f"`, ask(model, turn))
	}
}
