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

// A model of Google answers in the shapes of other vendors, whose clients know by the reason why an answer stopped that
// they are to run tools. What Google needs to take the call back returns with it.
func TestAModelOfGoogleAnswersInOtherShapes(t *testing.T) {
	t.Parallel()
	const (
		parts  = `{"text":"Both."},{"functionCall":{"id":"c1","name":"add","args":{"x": 1.0}},"thoughtSignature":"c2ln"}`
		answer = `{"candidates":[{"content":{"parts":[` + parts + `]},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":5,"candidatesTokenCount":2,"totalTokenCount":7}}`
	)
	v := vendorWith(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("alt") == "sse" {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = w.Write([]byte("data: " + answer + "\r\n\r\n"))
			return
		}
		says(http.StatusOK, "application/json", answer)(w, r)
	})
	g := serveWeb(t, nil, func(c *modelgw.Config, _ *modelgw.Deps) {
		c.Google.APIKey, c.Google.BaseURL = config.NewSecret("vendor-key"), v.URL
	})
	const signed = `{"functionCall":{"id":"c1","name":"add","args":{"x":1.0}},"thoughtSignature":"c2ln"}`
	for path, tt := range map[string]struct{ tools, again string }{
		"/v1/chat/completions": {
			`[{"type":"function","function":{"name":"add","parameters":{"type":"object"}}}]`,
			`{"role":"tool","tool_call_id":"c1","content":"1"}`,
		},
		messagesPath: {
			`[{"name":"add","input_schema":{"type":"object"}}]`,
			`{"role":"user","content":[{"type":"tool_result","tool_use_id":"c1","content":"1"}]}`,
		},
	} {
		ask := func(messages, more string) string {
			said := read(t, g.post(t, path, `{"model":"google/gemini-2.5-flash","max_tokens":9,"tools":`+tt.tools+`,"messages":[{"role":"user","content":"q"}`+messages+`]`+more+`}`))
			assert.Regexp(t, `"(finish_reason":"tool_calls|stop_reason":"tool_use)"`, said)
			asked := waittest.For(t, v.asked, "the request that reaches the vendor")
			assert.Equal(t, "vendor-key", asked.Header.Get("X-Goog-Api-Key"))
			assert.Empty(t, asked.Header.Get("Authorization"), "the client's token stays here")
			return said
		}
		ask("", `,"stream":true`)
		assert.Contains(t, string(waittest.For(t, v.body, "the first body")), `"maxOutputTokens":9`)
		var said struct {
			Choices []struct{ Message json.RawMessage }
			Content json.RawMessage
		}
		require.NoError(t, json.Unmarshal([]byte(ask("", "")), &said))
		waittest.For(t, v.body, "the second body")
		message := `{"role":"assistant","content":` + string(said.Content) + `}`
		if len(said.Choices) > 0 {
			message = string(said.Choices[0].Message)
		}
		ask(","+message+","+tt.again, "")
		assert.Contains(t, strings.ReplaceAll(string(waittest.For(t, v.body, "the third body")), `"x": `, `"x":`), signed, path)
	}
}
