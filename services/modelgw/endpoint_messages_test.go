package modelgw_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/config"
	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/services/modelgw"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/modeldata"
)

const messagesPath = "/v1/messages"

// serveMessages serves the endpoints of a gateway whose provider anthropic is at a vendor's.
func serveMessages(t *testing.T, v *vendor, changes ...setup) *web {
	t.Helper()
	return serveWeb(t, nil, append(changes, func(c *modelgw.Config, _ *modelgw.Deps) {
		c.Anthropic.APIKey, c.Anthropic.BaseURL = config.NewSecret("vendor-key"), v.URL
		c.Anthropic.Betas = []string{"configured"}
	})...)
}

func TestMessagesGoThroughUntouched(t *testing.T) {
	t.Parallel()
	const answered = `{"usage":{"input_tokens":5,"output_tokens":2},  "id":"msg_9","content":[{"type":"text","text":"\u00e9"}],"stop_reason":"end_turn","new":1.0}`
	v := vendorWith(t, says(http.StatusOK, "application/json", answered))
	g := serveMessages(t, v)
	body := `{"max_tokens":10, "model":"anthropic/claude-sonnet-4-5" ,"messages":[{"role":"user","content":"\u00e9"}],"new":{"model":"x"}}`
	answer := g.post(t, messagesPath+"?beta=true", body, "Authorization", "", "X-Api-Key", "right", "Anthropic-Version", "2023-06-01", "Anthropic-Beta", "a,b")
	assert.Equal(t, answered, read(t, answer))
	assert.Equal(t, strings.Replace(body, "anthropic/", "", 1), string(waittest.For(t, v.body, "the body that reaches the vendor")))
	asked := waittest.For(t, v.asked, "the request that reaches the vendor")
	assert.Equal(t, "/v1/messages?beta=true", asked.URL.String())
	assert.Equal(t, "vendor-key", asked.Header.Get("X-Api-Key"))
	assert.Empty(t, asked.Header.Get("Authorization"))
	assert.Equal(t, "2023-06-01", asked.Header.Get("Anthropic-Version"), "the client's version counts")
	assert.Equal(t, "a,b,configured", asked.Header.Get("Anthropic-Beta"))
	assert.Equal(t, int64(7), g.spent(t))

	read(t, g.post(t, messagesPath, body))
	asked = waittest.For(t, v.asked, "the request that reaches the vendor")
	assert.NotEmpty(t, asked.Header.Get("Anthropic-Version"), "without one, the account's")
}

func TestAStreamOfMessagesIsCounted(t *testing.T) {
	t.Parallel()
	const stream = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"msg_1\",\"usage\":{\"input_tokens\":5,\"output_tokens\":1}}}\n\n" +
		"event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"a\"}}\n\n" +
		"event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":9}}\n\n" +
		"event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"
	v := vendorWith(t, says(http.StatusOK, "text/event-stream", stream))
	g := serveMessages(t, v)
	assert.Equal(t, stream, read(t, g.post(t, messagesPath, `{"model":"anthropic/claude-sonnet-4-5","stream":true,"max_tokens":10,"messages":[]}`)))
	require.Eventually(t, func() bool { return g.spent(t) == 14 }, waitLimit, tick, "the call is settled")
}

func TestErrorsOfMessagesHaveTheirShape(t *testing.T) {
	t.Parallel()
	g := serveWeb(t, nil)
	for name, tt := range map[string]struct {
		body, header, value, kind string
		status                    int
	}{
		"wrong token":   {`{}`, "Authorization", "Bearer wrong", "authentication_error", 401},
		"unknown model": {`{"model":"claude-x","messages":[]}`, "X", "", "not_found_error", 404},
		"no bound":      {`{"model":"mockllm/m","messages":[{"role":"user","content":"x"}]}`, "X", "", "invalid_request_error", 400},
		"orphan result": {`{"model":"mockllm/m","max_tokens":5,"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":"x"}]}]}`, "X", "", "invalid_request_error", 400},
		"bad request":   {`{"model":"mockllm/m","max_tokens":5,"messages":[{"role":"critic","content":"x"}]}`, "X", "", "invalid_request_error", 400},
	} {
		answer := g.post(t, messagesPath, tt.body, tt.header, tt.value)
		assert.Equal(t, tt.status, answer.StatusCode, name)
		var said struct {
			Type  string
			Error struct{ Type, Message string }
		}
		require.NoError(t, json.Unmarshal([]byte(read(t, answer)), &said))
		assert.Equal(t, []string{"error", tt.kind}, []string{said.Type, said.Error.Type}, name)
		assert.NotEmpty(t, answer.Header.Get("Request-Id"))
	}
}

// A client of one vendor talks to a model of the other: its request is read, sent in the other format, and answered in
// its own.
func TestAClientOfOneVendorTalksToAModelOfTheOther(t *testing.T) {
	t.Parallel()
	v := vendorWith(t, says(http.StatusOK, "application/json", whole))
	g := serveWeb(t, v)
	answer := g.post(t, messagesPath, `{"model":"openai/gpt-4o","max_tokens":10,"system":"Be brief.","messages":[{"role":"user","content":"q"}]}`)
	var got struct {
		Type    string
		Content []struct{ Text string }
		Usage   struct {
			Input int `json:"input_tokens"`
		}
	}
	body := read(t, answer)
	require.NoError(t, json.Unmarshal([]byte(body), &got), body)
	assert.Equal(t, "message", got.Type)
	require.Len(t, got.Content, 1, body)
	assert.Equal(t, "é / café", got.Content[0].Text)
	assert.Equal(t, 9, got.Usage.Input)
	assert.JSONEq(t, `{"model":"gpt-4o","messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"q"}],"max_tokens":10}`, string(waittest.For(t, v.body, "the body that reaches the vendor")))
}

func TestTokensAreCountedByTheVendorOrEstimated(t *testing.T) {
	t.Parallel()
	v := vendorWith(t, says(http.StatusOK, "application/json", `{"input_tokens": 42}`))
	g := serveMessages(t, v)
	assert.Equal(t, `{"input_tokens": 42}`, read(t, g.post(t, messagesPath+"/count_tokens", `{"model":"anthropic/claude-sonnet-4-5","messages":[]}`)))
	assert.Equal(t, "/v1/messages/count_tokens", waittest.For(t, v.asked, "the request that reaches the vendor").URL.Path)
	question := `{"model":"mockllm/m","messages":[{"role":"user","content":"12345678"}]}`
	assert.JSONEq(t, `{"input_tokens": 3}`, read(t, g.post(t, messagesPath+"/count_tokens", question)))
	assert.Zero(t, g.spent(t), "counting costs nothing")
}

func TestModelsAreListedForAnthropicsClients(t *testing.T) {
	t.Parallel()
	g := serveWeb(t, nil)
	body := read(t, g.do(t.Context(), t, http.MethodGet, "/v1/models?limit=5", "", "Anthropic-Version", "2023-06-01"))
	assert.JSONEq(t, `{"data":[{"type":"model","id":"mockllm/model","display_name":"mockllm/model","created_at":"1970-01-01T00:00:00Z"}],
		"has_more":false,"first_id":"mockllm/model","last_id":"mockllm/model"}`, body)
}

func TestListsSayWhatIsKnownOfAModel(t *testing.T) {
	t.Parallel()
	g := serveWeb(t, vendorWith(t, says(http.StatusOK, "application/json", whole)), func(c *modelgw.Config, _ *modelgw.Deps) {
		c.Models = map[string]modeldata.Facts{"openai/our-tune": {Family: "openai/gpt-4o", Display: "Our tune", Context: 64000, Released: "2026-01-31"}}
		c.Endpoints.Aliases = map[string]string{"fast": "openai/our-tune"}
	})
	for name, want := range map[string]struct{ path, header, says string }{
		"OpenAI's":    {"/v1/models/openai/gpt-4o", "X", `{"id":"openai/gpt-4o","object":"model","created":1715558400,"owned_by":"openai"}`},
		"Anthropic's": {"/v1/models/openai/gpt-4o", "Anthropic-Version", `{"type":"model","id":"openai/gpt-4o","display_name":"GPT-4o","created_at":"2024-05-13T00:00:00Z"}`},
		"Gemini's": {"/v1beta/models/openai/gpt-4o", "X", `{"name":"models/openai/gpt-4o","displayName":"GPT-4o","inputTokenLimit":128000,"outputTokenLimit":16384,
			"supportedGenerationMethods":["generateContent","streamGenerateContent","countTokens"]}`},
		"an alias of a configured model": {"/v1beta/models/fast", "X", `{"name":"models/fast","displayName":"Our tune","inputTokenLimit":64000,"outputTokenLimit":16384,
			"supportedGenerationMethods":["generateContent","streamGenerateContent","countTokens"]}`},
	} {
		assert.JSONEq(t, want.says, read(t, g.do(t.Context(), t, http.MethodGet, want.path, "", want.header, "2023-06-01")), name)
	}
	assert.Contains(t, read(t, g.do(t.Context(), t, http.MethodGet, "/v1/models", "")), `{"id":"fast","object":"model","created":1769817600,"owned_by":"openai"}`)
}

func TestAnyModelStreamsMessages(t *testing.T) {
	t.Parallel()
	g := serveWeb(t, nil)
	answer := g.post(t, messagesPath, `{"model":"mockllm/model","stream":true,"max_tokens":50,"messages":[{"role":"user","content":"q"}]}`)
	stream, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	for _, event := range []string{"message_start", "content_block_start", "content_block_delta", "content_block_stop", "message_delta", "message_stop"} {
		assert.Contains(t, string(stream), "event: "+event+"\n")
	}
}

// A conversation that a model has no room for is refused in the words of the client's vendor, on which its programs
// shorten it.
func TestAConversationThatIsTooLongIsSaidSoInTheClientsWords(t *testing.T) {
	t.Parallel()
	const (
		ofAnthropic = `{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 210,000 tokens > 200000 maximum"}}`
		ofOpenAI    = `{"error":{"message":"This model's maximum context length is 128000 tokens. However, your messages resulted in 130001 tokens.","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}}`
		odd         = `{"error":{"message":"Input tokens exceed the configured limit","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}}`
	)
	for _, stream := range []string{"false", "true"} {
		v := vendorWith(t, says(http.StatusBadRequest, "application/json", ofAnthropic))
		g := serveMessages(t, v)
		answer := g.post(t, chatPath, `{"model":"anthropic/claude-sonnet-4-5","stream":`+stream+`,`+user+`}`)
		assert.Equal(t, http.StatusBadRequest, answer.StatusCode)
		message, kind, code := failure(t, answer)
		assert.Equal(t, "This model's maximum context length is 200000 tokens. However, your messages resulted in 210000 tokens. Please reduce the length of the messages.", message)
		assert.Equal(t, [2]string{"invalid_request_error", "context_length_exceeded"}, [2]string{kind, code})
		assert.Zero(t, g.spent(t), "nothing was generated")

		for said, want := range map[string]string{
			ofOpenAI: "prompt is too long: 130001 tokens > 128000 maximum", odd: "prompt is too long: Input tokens exceed the configured limit",
		} {
			v = vendorWith(t, says(http.StatusBadRequest, "application/json", said))
			g = serveWeb(t, v)
			answer = g.post(t, messagesPath, `{"model":"openai/gpt-4o","max_tokens":5,"stream":`+stream+`,`+user+`}`)
			assert.Equal(t, http.StatusBadRequest, answer.StatusCode)
			message, kind, _ = failure(t, answer)
			assert.Equal(t, [2]string{"invalid_request_error", want}, [2]string{kind, message})
		}
	}
}

// A model that ran out of room while it spoke has said something, and that is an answer.
func TestAnAnswerThatFillsTheContextIsAnAnswer(t *testing.T) {
	t.Parallel()
	g := serveWeb(t, nil, withScript(t, "s", `{"default": {"text": "so far", "stop_reason": "model_length"}}`))
	answer := g.post(t, chatPath, `{"model":"mockllm/s",`+user+`}`)
	assert.Equal(t, http.StatusOK, answer.StatusCode)
	body := read(t, answer)
	assert.Equal(t, "so far", content(t, body))
	assert.Contains(t, body, `"finish_reason":"length"`)
}

// A model with the Responses API answers clients of every format, and they are offered it.
func TestClientsOfEveryFormatReachTheResponsesAPI(t *testing.T) {
	t.Parallel()
	v := vendorWith(t, says(200, "application/json", `{"id":"resp_1","object":"response","status":"completed","model":"o3","output":[
		{"id":"msg_1","type":"message","role":"assistant","content":[{"type":"output_text","text":"fine","annotations":[]}]}],"usage":{"input_tokens":1,"output_tokens":1,"total_tokens":2}}`))
	w := serveWeb(t, v, func(c *modelgw.Config, _ *modelgw.Deps) { c.OpenAI.ResponsesAPI = new(true) })
	for path, headers := range map[string][]string{messagesPath: {"Anthropic-Version", "2023-06-01"}, "/v1/chat/completions": nil} {
		assert.Contains(t, read(t, w.do(t.Context(), t, http.MethodGet, "/v1/models", "", headers...)), `"openai/o3"`)
		answer := w.post(t, path, `{"model":"openai/o3","max_tokens":5,"messages":[{"role":"user","content":"q"}]}`, headers...)
		assert.Equal(t, 200, answer.StatusCode, path)
		assert.Contains(t, read(t, answer), `"fine"`, path)
		assert.Equal(t, "/v1/responses", (<-v.asked).URL.Path, path)
		refused := w.post(t, path, `{"model":"openai/o3","max_tokens":5,"temperature":0.5,"messages":[{"role":"user","content":"q"}]}`, headers...)
		assert.Equal(t, 400, refused.StatusCode, path)
		assert.Contains(t, read(t, refused), "temperature", path)
	}
}

// What a model said before reaches a model of another format as it was said.
func TestPastTextsOfMessagesStayAsTheyWere(t *testing.T) {
	t.Parallel()
	v := vendorWith(t, says(http.StatusOK, "application/json", whole))
	g := serveWeb(t, v)
	for _, mark := range []string{"", `,"cache_control":{"type":"ephemeral"}`} { // Clients move their marks from turn to turn.
		answer := g.post(t, messagesPath, `{"model":"openai/gpt-4o","max_tokens":10,"messages":[{"role":"user","content":"q"},
			{"role":"assistant","content":[{"type":"text","text":"Hello."`+mark+`}]},{"role":"user","content":[{"type":"text","text":"More."}]}]}`)
		require.Equal(t, http.StatusOK, answer.StatusCode, read(t, answer))
		assert.Contains(t, string(waittest.For(t, v.body, "the request")), `{"role":"assistant","content":"Hello."}`)
	}
}
