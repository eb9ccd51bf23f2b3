package modelgw_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/config"
	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/services/modelgw"
)

// serveGemini serves the endpoints of a gateway whose provider google is at a vendor's.
func serveGemini(t *testing.T, v *vendor) *web {
	t.Helper()
	return serveWeb(t, nil, func(c *modelgw.Config, _ *modelgw.Deps) {
		c.Google.APIKey, c.Google.BaseURL = config.NewSecret("vendor-key"), v.URL
	})
}

const geminiPath = "/v1beta/models/"

func TestGeminiGoesThroughUntouched(t *testing.T) {
	t.Parallel()
	const answered = `{"candidates":[{"content":{"parts":[{"text":"\u00e9"}]},"finishReason":"STOP"}],  "usageMetadata":{"promptTokenCount":5,"candidatesTokenCount":2,"totalTokenCount":7},"new":1.0}`
	v := vendorWith(t, says(http.StatusOK, "application/json", answered))
	g := serveGemini(t, v)
	const body = `{"contents":[{"parts":[{"text":"\u00e9"}]}] ,"safetySettings":[],"generationConfig":{"maxOutputTokens":9},"new":{"model":"x"}}`
	for version, headers := range map[string][]string{
		"/v1beta": {"Authorization", "", "X-Goog-Api-Key", "right", "X-Goog-Api-Client", "genai"},
		"/v1":     {"Authorization", "Bearer right"},
		"":        {"X-Api-Key", "right"},
	} {
		answer := g.post(t, version+"/models/google/gemini-2.5-flash:generateContent?prettyPrint=false", body, headers...)
		assert.Equal(t, answered, read(t, answer))
		assert.Equal(t, body, string(waittest.For(t, v.body, "the body that reaches the vendor")))
		asked := waittest.For(t, v.asked, "the request that reaches the vendor")
		assert.Equal(t, "/v1beta/models/gemini-2.5-flash:generateContent?prettyPrint=false", asked.URL.String())
		assert.Equal(t, "vendor-key", asked.Header.Get("X-Goog-Api-Key"))
		assert.Empty(t, asked.Header.Get("Authorization"))
	}
	assert.Equal(t, int64(21), g.spent(t))
}

// A token in the address is the platform's, and stays here, however it is spelled; so does what would take the usage
// out of an answer, or give another credential.
func TestAKeyInTheAddress(t *testing.T) {
	t.Parallel()
	v := vendorWith(t, says(http.StatusOK, "application/json", `{"candidates":[]}`))
	g := serveGemini(t, v)
	for query, want := range map[string]string{
		"key=right&alt=json&x=1": "alt=json", "%6bey=right": "", "%6Bey=right&prettyPrint=false": "prettyPrint=false", "key=right&key=right": "", "x=1;key=right&key=right": "",
		"key=right&fields=candidates&access_token=x&$httpHeaders=a:b&alt=json&alt=proto": "alt=json",
	} {
		read(t, g.post(t, geminiPath+"google/gemini-2.5-flash:generateContent?"+query, `{"contents":[]}`, "Authorization", ""))
		assert.Equal(t, want, waittest.For(t, v.asked, "the request that reaches the vendor").URL.RawQuery, query)
	}
	chats := serveWeb(t, v)
	read(t, chats.post(t, chatPath+"?%6bey=right&api-version=1", `{"model":"openai/gpt-4o",`+user+`}`, "Authorization", ""))
	assert.Equal(t, "api-version=1", waittest.For(t, v.asked, "the request that reaches the vendor").URL.RawQuery)
	refused := g.post(t, geminiPath+"google/gemini-2.5-flash:generateContent?key=wrong", `{}`, "Authorization", "")
	assert.Equal(t, http.StatusUnauthorized, refused.StatusCode)
	assert.Contains(t, read(t, refused), `"status":"UNAUTHENTICATED"`)
}

func TestAStreamOfGeminiIsCounted(t *testing.T) {
	t.Parallel()
	const stream = "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"a\"}]}}]}\r\n\r\n" +
		"data: {\"candidates\":[{\"finishReason\":\"STOP\"}],\"usageMetadata\":{\"promptTokenCount\":5,\"candidatesTokenCount\":9,\"totalTokenCount\":14}}\r\n\r\n"
	v := vendorWith(t, says(http.StatusOK, "text/event-stream", stream))
	g := serveGemini(t, v)
	assert.Equal(t, stream, read(t, g.post(t, geminiPath+"google/gemini-2.5-flash:streamGenerateContent?alt=sse", `{"contents":[]}`)))
	assert.Equal(t, "/v1beta/models/gemini-2.5-flash:streamGenerateContent?alt=sse", waittest.For(t, v.asked, "the request that reaches the vendor").URL.String())
	require.Eventually(t, func() bool { return g.spent(t) == 14 }, waitLimit, tick, "the call is settled")
}

func TestTokensOfGeminiAreCountedByTheVendorOrEstimated(t *testing.T) {
	t.Parallel()
	v := vendorWith(t, says(http.StatusOK, "application/json", `{"totalTokens": 42}`))
	g := serveGemini(t, v)
	const turn = `"contents":[{"role":"user","parts":[{"text":"12345678"}]}]`
	body := `{"generateContentRequest":{ "model":"models/google/gemini-2.5-flash",` + turn + `}}`
	assert.Equal(t, `{"totalTokens": 42}`, read(t, g.post(t, geminiPath+"google/gemini-2.5-flash:countTokens", body)))
	assert.Equal(t, strings.Replace(body, "google/", "", 1), string(waittest.For(t, v.body, "the body that reaches the vendor")))
	for _, question := range []string{`{` + turn + `}`, `{"generateContentRequest":{` + turn + `}}`} {
		assert.JSONEq(t, `{"totalTokens": 3}`, read(t, g.post(t, geminiPath+"mockllm/m:countTokens", question)))
	}
	assert.Zero(t, g.spent(t), "counting costs nothing")
}

// Any model answers Gemini's clients, at once, as events, and as the list that a client gets which asks for no events.
func TestAnyModelSpeaksGemini(t *testing.T) {
	t.Parallel()
	g := serveWeb(t, nil, withScript(t, "words", `{"default": {"text": "one two three"}}`))
	const question = `{"contents":[{"parts":[{"text":"q"}]}],"generationConfig":{"maxOutputTokens":50}}`
	type answer struct {
		Candidates []struct {
			Content      struct{ Parts []struct{ Text string } }
			FinishReason string
		}
		Usage *struct{} `json:"usageMetadata"`
		Model string    `json:"modelVersion"`
	}
	text := func(pieces []answer) (said string) {
		for _, piece := range pieces {
			for _, c := range piece.Candidates {
				for _, part := range c.Content.Parts {
					said += part.Text
				}
			}
		}
		last := pieces[len(pieces)-1]
		require.NotEmpty(t, last.Candidates)
		assert.Equal(t, "STOP", last.Candidates[0].FinishReason)
		assert.NotNil(t, last.Usage)
		assert.Equal(t, "mockllm/words", last.Model)
		return said
	}
	var whole answer
	require.NoError(t, json.Unmarshal([]byte(read(t, g.post(t, geminiPath+"mockllm/words:generateContent", question))), &whole))
	want := text([]answer{whole})
	require.NotEmpty(t, want)

	list := g.post(t, geminiPath+"mockllm/words:streamGenerateContent", question)
	assert.Contains(t, list.Header.Get("Content-Type"), "application/json")
	var listed []answer
	require.NoError(t, json.Unmarshal([]byte(read(t, list)), &listed))
	assert.Equal(t, want, text(listed))

	var streamed []answer
	for line := range strings.SplitSeq(read(t, g.post(t, geminiPath+"mockllm/words:streamGenerateContent?alt=sse", question)), "\n") {
		if data, ok := strings.CutPrefix(line, "data: "); ok {
			var piece answer
			require.NoError(t, json.Unmarshal([]byte(data), &piece))
			streamed = append(streamed, piece)
		}
	}
	assert.Equal(t, want, text(streamed))
}

// Gemini's own client says in each request how to sample, whatever the model. One that is sampled otherwise answers,
// and the answer says what was not sent.
func TestHowGeminisClientsSampleIsLeftOutWhereTheModelDoesNotTakeIt(t *testing.T) {
	t.Parallel()
	const sampled = `{"contents":[{"parts":[{"text":"q"}]}],"generationConfig":{"temperature":0.2,"topP":0.95,"topK":64%s}}`
	v := vendorWith(t, says(http.StatusOK, "application/json", whole))
	g := serveWeb(t, v)
	answer := g.post(t, geminiPath+"openai/gpt-4o:generateContent", fmt.Sprintf(sampled, ""))
	assert.Equal(t, http.StatusOK, answer.StatusCode, "%s", read(t, answer))
	assert.Equal(t, "topK", answer.Header.Get("Evalfleet-Unsent"))
	var sent map[string]json.RawMessage
	require.NoError(t, json.Unmarshal(<-v.body, &sent))
	assert.Equal(t, []string{"0.2", "0.95", ""}, []string{string(sent["temperature"]), string(sent["top_p"]), string(sent["top_k"])})

	answer = g.post(t, geminiPath+"openai/gpt-4o:streamGenerateContent?alt=sse", fmt.Sprintf(sampled, `,"presencePenalty":1`))
	assert.Equal(t, "topK", answer.Header.Get("Evalfleet-Unsent"), "also before a stream")
	_, _ = read(t, answer), <-v.body

	g = serveMessages(t, v)
	answer = g.post(t, geminiPath+"anthropic/claude-sonnet-4-5:generateContent", fmt.Sprintf(sampled, `,"presencePenalty":1`))
	assert.Equal(t, http.StatusBadRequest, answer.StatusCode)
	assert.Contains(t, read(t, answer), "presencePenalty: is not supported by anthropic/claude-sonnet-4-5", "what clients seldom say is refused")
	assert.Empty(t, answer.Header.Get("Evalfleet-Unsent"))
}

// An answer that is JSON without a schema is asked for in the words of the model's vendor; one that has no such answers
// is not asked.
func TestJSONWithoutASchemaReachesOtherVendors(t *testing.T) {
	t.Parallel()
	v := vendorWith(t, says(http.StatusOK, "application/json", `{"candidates":[{"content":{"parts":[{"text":"{}"}]},"finishReason":"STOP"}]}`))
	chat := `{"model":"google/gemini-2.5-flash",` + user + `,"response_format":{"type":"json_object"}}`
	assert.Contains(t, read(t, serveGemini(t, v).post(t, chatPath, chat)), `"content":"{}"`)
	var sent struct{ GenerationConfig map[string]any }
	require.NoError(t, json.Unmarshal(waittest.For(t, v.body, "the body that reaches the vendor"), &sent))
	assert.Equal(t, "application/json", sent.GenerationConfig["responseMimeType"])
	assert.NotContains(t, sent.GenerationConfig, "responseJsonSchema")

	openai := vendorWith(t, says(http.StatusOK, "application/json", `{"id":"c","choices":[{"message":{"content":"{}"},"finish_reason":"stop"}]}`))
	read(t, serveWeb(t, openai).post(t, geminiPath+"openai/gpt-4o:generateContent", `{"contents":[{"role":"user","parts":[{"text":"q"}]}],"generationConfig":{"responseMimeType":"application/json"}}`))
	assert.Contains(t, string(waittest.For(t, openai.body, "the body that reaches the vendor")), `"response_format":{"type":"json_object"}`)

	claude := serveWeb(t, nil, func(c *modelgw.Config, _ *modelgw.Deps) { c.Anthropic.APIKey = config.NewSecret("vendor-key") })
	refused := claude.post(t, chatPath, `{"model":"anthropic/claude-sonnet-5",`+user+`,"response_format":{"type":"json_object"}}`)
	assert.Equal(t, http.StatusBadRequest, refused.StatusCode)
	message, _, code := failure(t, refused)
	assert.Contains(t, message, "response_format: anthropic: the Messages API cannot take an answer that is JSON without a schema")
	assert.Equal(t, "unsupported_parameter", code)
	refused = claude.post(t, geminiPath+"anthropic/claude-sonnet-5:generateContent", `{"contents":[{"parts":[{"text":"q"}]}],"generationConfig":{"responseMimeType":"application/json"}}`)
	assert.Contains(t, read(t, refused), `"message":"responseSchema: anthropic: `)
}

func TestErrorsOfGeminiHaveTheirShape(t *testing.T) {
	t.Parallel()
	g := serveWeb(t, nil)
	for name, tt := range map[string]struct {
		path, body, status, says string
		code                     int
	}{
		"unknown model":  {"gemini-2.5-flash:generateContent", `{}`, "NOT_FOUND", "<provider>/<model>", 404},
		"no turn":        {"mockllm/m:generateContent", `{}`, "INVALID_ARGUMENT", "contents", 400},
		"no JSON":        {"mockllm/m:generateContent", `[]`, "INVALID_ARGUMENT", "no JSON object", 400},
		"unknown method": {"mockllm/m:embedContent", `{}`, "NOT_FOUND", "generateContent", 404},
		"no method":      {"mockllm/m", `{}`, "NOT_FOUND", "generateContent", 404},
	} {
		answer := g.post(t, geminiPath+tt.path, tt.body)
		assert.Equal(t, tt.code, answer.StatusCode, name)
		var said struct {
			Error struct {
				Code            int
				Message, Status string
			}
		}
		require.NoError(t, json.Unmarshal([]byte(read(t, answer)), &said), name)
		assert.Equal(t, tt.code, said.Error.Code, name)
		assert.Equal(t, tt.status, said.Error.Status, name)
		assert.Contains(t, said.Error.Message, tt.says, name)
	}
	put := g.do(t.Context(), t, http.MethodPut, geminiPath+"mockllm/m", "")
	assert.Equal(t, http.StatusMethodNotAllowed, put.StatusCode)
	assert.Equal(t, "GET, POST", put.Header.Get("Allow"))
}

func TestModelsAreListedForGooglesClients(t *testing.T) {
	t.Parallel()
	g := serveWeb(t, nil)
	const entry = `{"name":"models/mockllm/model","displayName":"mockllm/model","supportedGenerationMethods":["generateContent","streamGenerateContent","countTokens"]}`
	for path, header := range map[string]string{"/v1beta/models?pageSize=5": "X", "/v1/models": "X-Goog-Api-Client"} {
		assert.JSONEq(t, fmt.Sprintf(`{"models":[%s]}`, entry), read(t, g.do(t.Context(), t, http.MethodGet, path, "", header, "genai")), path)
	}
	assert.JSONEq(t, entry, read(t, g.do(t.Context(), t, http.MethodGet, "/v1beta/models/mockllm/model", "")))
}

// thinker is an answer of a vendor's that thinks, says something and calls a tool.
const thinker = `{"id":"msg_1","type":"message","role":"assistant","model":"claude","content":[{"type":"thinking","thinking":"let me think","signature":"c2ln"},
	{"type":"text","text":"I call."},{"type":"tool_use","id":"toolu_1","name":"add","input":{"x":1}}],"stop_reason":"tool_use","usage":{"input_tokens":5,"output_tokens":9}}`

// thinkerEvents is the same as a stream.
const thinkerEvents = `data: {"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"claude","content":[],"usage":{"input_tokens":5,"output_tokens":1}}}

data: {"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}

data: {"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"let me think"}}

data: {"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"c2ln"}}

data: {"type":"content_block_stop","index":0}

data: {"type":"content_block_start","index":1,"content_block":{"type":"text","text":""}}

data: {"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"I call."}}

data: {"type":"content_block_stop","index":1}

data: {"type":"content_block_start","index":2,"content_block":{"type":"tool_use","id":"toolu_1","name":"add","input":{}}}

data: {"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"{\"x\":1}"}}

data: {"type":"content_block_stop","index":2}

data: {"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":9}}

data: {"type":"message_stop"}

`

const addTool = `"tools":[{"functionDeclarations":[{"name":"add","description":"Adds.","parameters":{"type":"OBJECT","properties":{"x":{"type":"NUMBER"}}}}]}]`

// secondTurn is a request whose conversation has a model's turn with a call, and its result.
func secondTurn(parts string) string {
	return `{"contents":[{"role":"user","parts":[{"text":"q"}]},{"role":"model","parts":[` + parts + `]},{"role":"user","parts":[{"functionResponse":{"name":"add",` +
		`"response":{"output":"3"}}}]}],` + addTool + `,"generationConfig":{"maxOutputTokens":4000}}`
}

// answered is the next body that reaches a vendor and does not ask for a count of tokens.
func answered(t *testing.T, v *vendor) []byte {
	t.Helper()
	for {
		asked, body := waittest.For(t, v.asked, "the request that reaches the vendor"), waittest.For(t, v.body, "its body")
		if !strings.HasSuffix(asked.URL.Path, "/count_tokens") {
			return body
		}
	}
}

// Claude's thinking comes back to Claude as it was from a client that sends back the parts that it was given.
func TestThinkingSurvivesClientsOfGemini(t *testing.T) {
	t.Parallel()
	const want = `[{"type":"thinking","thinking":"let me think","signature":"c2ln"},{"type":"text","text":"I call."},{"cache_control":{"type":"ephemeral"},"type":"tool_use","id":"toolu_1","name":"add","input":{"x":1}}]`
	for method, answer := range map[string]http.HandlerFunc{
		"generateContent": says(http.StatusOK, "application/json", thinker), "streamGenerateContent": says(http.StatusOK, "text/event-stream", thinkerEvents),
	} {
		v := vendorWith(t, answer)
		g := serveMessages(t, v)
		path := geminiPath + "anthropic/claude-sonnet-4-5:" + method
		document := read(t, g.post(t, path, `{"contents":[{"role":"user","parts":[{"text":"q"}]}],`+addTool+`,"generationConfig":{"maxOutputTokens":4000}}`))
		answered(t, v)
		if !strings.HasPrefix(document, "[") {
			document = "[" + document + "]"
		}
		var said []struct {
			Candidates []struct {
				Content struct{ Parts []json.RawMessage }
			}
		}
		require.NoError(t, json.Unmarshal([]byte(document), &said), document)
		var parts []string
		for _, piece := range said {
			for _, c := range piece.Candidates {
				for _, part := range c.Content.Parts {
					parts = append(parts, string(part))
				}
			}
		}
		read(t, g.post(t, path, secondTurn(strings.Join(parts, ","))))
		var asked struct {
			Messages []struct{ Content json.RawMessage }
		}
		require.NoError(t, json.Unmarshal(answered(t, v), &asked))
		assert.JSONEq(t, want, string(asked.Messages[1].Content), method)
	}
}

// A call that a client sends without a signature reaches other vendors as a call alone.
func TestACallWithoutASignatureReachesOtherVendors(t *testing.T) {
	t.Parallel()
	v := vendorWith(t, says(http.StatusBadRequest, "application/json", `{"error":{"message":"no"}}`))
	claude, chats, items := serveMessages(t, v), serveWeb(t, v), serveWeb(t, v, throughResponses)
	for model, g := range map[string]*web{"anthropic/claude-sonnet-4-5": claude, "openai/gpt-4o": chats, "openai/gpt-5": items} {
		read(t, g.post(t, geminiPath+model+":generateContent", secondTurn(`{"functionCall":{"name":"add","args":{"x":1}}}`)))
		body := string(answered(t, v))
		assert.Contains(t, body, "call_add_1", model)
		for _, mark := range []string{"redacted", "think", "encrypted_content\":\""} {
			assert.NotContains(t, body, mark, model)
		}
	}
}

// A request names its model and its bound once, in whatever spelling: the vendor may heed another than the budget does.
func TestGeminiSaysNothingTwice(t *testing.T) {
	t.Parallel()
	v := vendorWith(t, says(http.StatusOK, "application/json", `{"candidates":[],"totalTokens":3}`))
	g := serveGemini(t, v)
	for body, member := range map[string]string{
		`{"contents":[],"generationConfig":{"maxOutputTokens":1},"generation_config":{"max_output_tokens":60000}}`: "max_output_tokens",
		`{"contents":[],"generationConfig":{"maxOutputTokens":1,"max_output_tokens":60000}}`:                       "max_output_tokens",
		`{"contents":[],"model":"models/a","generateContentRequest":{"model":"models/b"}}`:                         "model",
	} {
		for _, method := range []string{"generateContent", "countTokens"} {
			answer := g.post(t, geminiPath+"google/gemini-2.5-flash:"+method, body)
			assert.Equal(t, http.StatusBadRequest, answer.StatusCode, body)
			assert.Regexp(t, `"message":"[^"]*`+member+`: is there more than once"`, read(t, answer), body)
		}
	}
	assert.Empty(t, v.body)
}

// The AI SDK leaves models/ out where a model's name has a slash.
func TestANameWithASlashNeedsNoModelsBeforeIt(t *testing.T) {
	t.Parallel()
	g := serveWeb(t, nil)
	answer := g.post(t, "/v1beta/mockllm/model:generateContent", `{"contents":[{"parts":[{"text":"q"}]}]}`)
	assert.Equal(t, http.StatusOK, answer.StatusCode, "%s", read(t, answer))
	for _, path := range []string{"/v1beta/openai/chat/completions", "/v1beta/mockllm/model:embedContent"} {
		answer = g.post(t, path, `{}`)
		assert.Equal(t, http.StatusNotFound, answer.StatusCode)
		assert.Contains(t, read(t, answer), "is not spoken here")
	}
	assert.Contains(t, read(t, g.do(t.Context(), t, http.MethodGet, "/v1beta/files", "")), "is not spoken here")
}

// A method of a model is Gemini's, whatever the headers and the name of the model; a name with a colon is not one.
func TestThePathSaysWhoseMethodItIs(t *testing.T) {
	t.Parallel()
	v := vendorWith(t, says(http.StatusOK, "application/json", `{"candidates":[{"content":{"parts":[{"text":"a"}]}}]}`))
	g := serveWeb(t, nil, func(c *modelgw.Config, _ *modelgw.Deps) {
		c.Google.APIKey, c.Google.BaseURL = config.NewSecret("vendor-key"), v.URL
		c.Anthropic.APIKey, c.Anthropic.BaseURL = config.NewSecret("vendor-key"), v.URL
	})
	const question = `{"contents":[{"parts":[{"text":"12345678"}]}]}`
	read(t, g.post(t, "/v1/models/google/gemini-2.5-flash:generateContent", question, "Anthropic-Version", "2023-06-01"))
	assert.Equal(t, "/v1beta/models/gemini-2.5-flash:generateContent", waittest.For(t, v.asked, "the request that reaches the vendor").URL.Path)
	for path, status := range map[string]int{"anthropic/claude-sonnet-4-5:generateContent": http.StatusBadRequest, "anthropic/claude-sonnet-4-5:nothing": http.StatusNotFound} {
		answer := g.post(t, "/v1/models/"+path, `{"max_tokens":5,"messages":[]}`, "Anthropic-Version", "2023-06-01")
		assert.Equal(t, status, answer.StatusCode, path)
		assert.Contains(t, read(t, answer), `"status":`, "%s: it is said as Gemini says it", path)
	}
	assert.Len(t, v.body, 1)
	for _, path := range []string{"mockllm/a%0Ab:countTokens", "mockllm/model:countTokens"} {
		answer := g.post(t, "/v1/models/"+path, question)
		assert.Equal(t, http.StatusOK, answer.StatusCode, path)
		assert.JSONEq(t, `{"totalTokens":3}`, read(t, answer), path)
	}
	for header, want := range map[string]string{"X": `"id":"mockllm/ft:a:org::b","object":"model"`, "X-Goog-Api-Client": `"name":"models/mockllm/ft:a:org::b"`, "Anthropic-Version": `"type":"model"`} {
		assert.Contains(t, read(t, g.do(t.Context(), t, http.MethodGet, "/v1/models/mockllm/ft:a:org::b", "", header, "x")), want)
	}
}

// That Google refuses the account's key is the operator's affair, in whichever lane, although Google says it with a
// 400.
func TestARefusedKeyOfGooglesIsTheOperatorsAffair(t *testing.T) {
	t.Parallel()
	const failed = `{"error":{"code":400,"message":"API key not valid. Please pass a valid API key.","status":"INVALID_ARGUMENT","details":[` +
		`{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"API_KEY_INVALID","domain":"googleapis.com"}]}}`
	for _, said := range []string{failed, "[" + failed + "]"} {
		g := serveGemini(t, vendorWith(t, says(http.StatusBadRequest, "application/json", said)))
		for path, body := range map[string]string{
			geminiPath + "google/gemini-2.5-flash:generateContent":       `{"contents":[{"parts":[{"text":"q"}]}]}`,
			geminiPath + "google/gemini-2.5-flash:streamGenerateContent": `{"contents":[{"parts":[{"text":"q"}]}]}`,
			chatPath: `{"model":"google/gemini-2.5-flash",` + user + `}`,
		} {
			answer := g.post(t, path, body)
			assert.Equal(t, http.StatusBadRequest, answer.StatusCode, path)
			text := read(t, answer)
			assert.Contains(t, text, "account", path)
			assert.NotContains(t, text, "API key not valid", path)
		}
	}
}
