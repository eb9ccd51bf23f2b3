package modelgw_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/config"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/services/modelgw"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/openaicompat"
)

// twoUses is an answer of Anthropic's with two calls, as a body and as events.
const (
	twoUses = `{"id":"msg_1","model":"claude-sonnet-4-5","content":[{"type":"tool_use","id":"toolu_1","name":"add","input":{"x": 1.0}},
		{"type":"tool_use","id":"toolu_2","name":"ping","input":{}}],"stop_reason":"tool_use","usage":{"input_tokens":5,"output_tokens":7}}`
	twoUsesStreamed = `event: message_start
data: {"type":"message_start","message":{"id":"msg_1","model":"claude-sonnet-4-5","usage":{"input_tokens":5,"output_tokens":1}}}

event: content_block_start
data: {"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"toolu_1","name":"add","input":{}}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{\"x\":"}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":" 1.0}"}}

event: content_block_stop
data: {"type":"content_block_stop","index":0}

event: content_block_start
data: {"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"toolu_2","name":"ping","input":{}}}

event: content_block_stop
data: {"type":"content_block_stop","index":1}

event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":7}}

event: message_stop
data: {"type":"message_stop"}

`
)

// functions offer two functions in the older form of chat completions.
const functions = `"functions":[{"name":"add","description":"Adds.","parameters":{"type":"object","properties":{"x":{"type":"number"}}}},{"name":"ping"}]`

type functionCall struct{ Name, Arguments string }

// calledAt reads what a client of the older form gets: the call of an answer, or of all chunks of a stream.
func calledAt(t *testing.T, body string) (call functionCall, finish string, chunks int) {
	t.Helper()
	if strings.HasPrefix(body, "{") {
		body = "data: " + strings.ReplaceAll(body, "\n", "") + "\n\n"
	}
	assert.NotContains(t, body, "tool_calls")
	for event, err := range dialect.Events(strings.NewReader(body)) {
		require.NoError(t, err)
		if string(event.Data) == "[DONE]" {
			break
		}
		var said struct {
			Choices []struct {
				Message, Delta struct {
					Call *functionCall `json:"function_call"`
				}
				Finish string `json:"finish_reason"`
			}
		}
		require.NoError(t, json.Unmarshal(event.Data, &said), body)
		for _, choice := range said.Choices {
			finish += choice.Finish
			for _, piece := range []*functionCall{choice.Message.Call, choice.Delta.Call} {
				if piece != nil {
					call.Name += piece.Name
					call.Arguments += piece.Arguments
					chunks++
				}
			}
		}
	}
	return call, finish, chunks
}

// A client that knows the older form of tools alone talks to a model of another vendor, which is asked for one call at
// a time. If there are more all the same, the client has the first.
func TestFunctionsReachAnyModel(t *testing.T) {
	t.Parallel()
	v := vendorWith(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Accept") == "text/event-stream" {
			says(http.StatusOK, "text/event-stream", twoUsesStreamed)(w, r)
			return
		}
		says(http.StatusOK, "application/json", twoUses)(w, r)
	})
	g := serveMessages(t, v)
	const history = `"messages":[{"role":"user","content":"q"},
		{"role":"assistant","content":null,"function_call":{"name":"add","arguments":"{\"x\": 2.0}"}},{"role":"function","name":"add","content":"two"},
		{"role":"assistant","content":null,"function_call":{"name":"add","arguments":"{\"x\": 2.0}"}},{"role":"function","name":"add","content":"again"}]`
	for _, stream := range []string{"false", "true"} {
		body := read(t, g.post(t, chatPath, `{"model":"anthropic/claude-sonnet-4-5","max_tokens":9,"stream":`+stream+`,`+functions+`,`+history+`}`))
		call, finish, chunks := calledAt(t, body)
		assert.Equal(t, functionCall{"add", `{"x": 1.0}`}, call, body)
		assert.Equal(t, "function_call", finish)
		assert.Equal(t, map[string]bool{"false": true, "true": false}[stream], chunks == 1, "the arguments come in pieces")

		var asked struct {
			Messages json.RawMessage
			Tools    []struct{ Name, Description string }
			Choice   json.RawMessage `json:"tool_choice"`
		}
		require.NoError(t, json.Unmarshal(waittest.For(t, v.body, "the body that reaches the vendor"), &asked))
		require.Len(t, asked.Tools, 2)
		assert.Equal(t, "Adds.", asked.Tools[0].Description)
		assert.JSONEq(t, `{"type":"auto","disable_parallel_tool_use":true}`, string(asked.Choice))
		for _, id := range []string{"function_call_1", "function_call_2"} {
			assert.Equal(t, 2, strings.Count(string(asked.Messages), `"`+id+`"`), "the call and its result: %s", asked.Messages)
		}
	}
}

// One call at a time is a wish of the platform's, for which no request is refused where a model's API has no such
// option.
func TestFunctionsReachModelsThatCallInParallel(t *testing.T) {
	t.Parallel()
	const answer = `{"id":"x","choices":[{"finish_reason":"tool_calls","message":{"role":"assistant","tool_calls":[{"id":"c1","type":"function","function":{"name":"ping","arguments":"{}"}}]}}]}`
	v := vendorWith(t, says(http.StatusOK, "application/json", answer))
	g := serveWeb(t, nil, func(c *modelgw.Config, _ *modelgw.Deps) {
		c.Services = openaicompat.Services{"azureai": {Account: openaicompat.Account{Account: provider.Account{APIKey: config.NewSecret("k"), BaseURL: v.URL}}}}
	})
	// An answer that is kept takes the way of other formats.
	body := read(t, g.post(t, chatPath, `{"model":"azureai/phi-4","function_call":{"name":"ping"},`+functions+`,`+user+`}`, "Evalfleet-Cache", "1h"))
	call, finish, _ := calledAt(t, body)
	assert.Equal(t, functionCall{"ping", "{}"}, call, body)
	assert.Equal(t, "function_call", finish)
	assert.NotContains(t, string(waittest.For(t, v.body, "the body that reaches the vendor")), "parallel_tool_calls")
}
