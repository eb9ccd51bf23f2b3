package modelgw_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/evalfleet/evalfleet/pkg/config"
	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/services/modelgw"
)

// A model of Mistral answers in the shapes of other vendors, whose clients know by the reason why an answer stopped
// that they are to run tools. An option that the API would ignore is refused.
func TestAModelOfMistralAnswersInOtherShapes(t *testing.T) {
	t.Parallel()
	const (
		entries = `{"type":"message.output","id":"m1","model":"served","content":[{"type":"thinking","thinking":[{"type":"text","text":"Hm."}]},{"type":"text","text":"Both."}]},` +
			`{"type":"function.call","id":"f1","tool_call_id":"c1","name":"add","arguments":"{\"x\": 1.0}"}`
		usage  = `"usage":{"prompt_tokens":5,"completion_tokens":2,"total_tokens":7}`
		answer = `{"object":"conversation.response","conversation_id":"conv_1","outputs":[` + entries + `],` + usage + `}`
		events = `data: {"type":"conversation.response.started","conversation_id":"conv_1"}` + "\n\n" +
			`data: {"type":"message.output.delta","id":"m1","content":{"type":"thinking","thinking":[{"type":"text","text":"Hm."}]}}` + "\n\n" +
			`data: {"type":"message.output.delta","id":"m1","content_index":1,"content":"Both."}` + "\n\n" +
			`data: {"type":"function.call.delta","id":"f1","tool_call_id":"c1","name":"add","arguments":"{\"x\": 1.0}"}` + "\n\n" +
			`data: {"type":"conversation.response.done",` + usage + `}` + "\n\n"
	)
	v := vendorWith(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Accept") == "text/event-stream" {
			says(http.StatusOK, "text/event-stream", events)(w, r)
			return
		}
		says(http.StatusOK, "application/json", answer)(w, r)
	})
	g := serveWeb(t, nil, func(c *modelgw.Config, _ *modelgw.Deps) {
		c.Mistral.APIKey, c.Mistral.BaseURL = config.NewSecret("vendor-key"), v.URL
	})
	for path, tools := range map[string]string{
		"/v1/chat/completions": `[{"type":"function","function":{"name":"add","parameters":{"type":"object"}}}]`,
		messagesPath:           `[{"name":"add","input_schema":{"type":"object"}}]`,
	} {
		for _, stream := range []string{"false", "true"} {
			said := read(t, g.post(t, path, `{"model":"mistral/mistral-large-latest","max_tokens":9,"stream":`+stream+`,"tools":`+tools+`,"messages":[{"role":"user","content":"q"}]}`))
			assert.Regexp(t, `"(finish_reason":"tool_calls|stop_reason":"tool_use)"`, said)
			assert.Contains(t, said, "Hm.")
			asked := waittest.For(t, v.asked, "the request that reaches the vendor")
			assert.Equal(t, "/v1/conversations", asked.URL.Path)
			assert.Equal(t, "Bearer vendor-key", asked.Header.Get("Authorization"))
			assert.Contains(t, string(waittest.For(t, v.body, "its body")), `"completion_args":{"max_tokens":9`)
		}
	}
	refused := read(t, g.post(t, "/v1/chat/completions", `{"model":"mistral/mistral-large-latest","n":2,"messages":[{"role":"user","content":"q"}]}`))
	assert.Contains(t, refused, "is not supported by mistral/mistral-large-latest")
}
