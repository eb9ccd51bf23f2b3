package modelgw_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/config"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/services/modelgw"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/providertest"
)

const (
	compactPath = responsesPath + "/compact"
	trigger     = `{"type":"compaction_trigger"}`
	// worked is a conversation in which a tool was called.
	worked = `{"type":"message","role":"developer","content":[{"type":"input_text","text":"Be brief."}]},
		{"type":"message","role":"user","content":[{"type":"input_text","text":"Count the files."}]},
		{"type":"function_call","id":"fc_1","call_id":"c1","name":"exec_command","arguments":"{\"cmd\":\"ls\"}"},
		{"type":"function_call_output","call_id":"c1","output":"a b c"}`
	// asCodex are the members that Codex sends besides.
	asCodex = `"store":false,"include":["reasoning.encrypted_content"],"parallel_tool_calls":true,"prompt_cache_key":"t1","tool_choice":"auto",
		"reasoning":{"summary":"auto"},"client_metadata":{"a":"b"},
		"tools":[{"type":"function","name":"exec_command","parameters":{"type":"object"}},{"type":"web_search"}]`
	summaryOfIt = "There are three files."
)

// behind is a server whose requests are recorded on their way to another.
func behind(t *testing.T, address string) *vendor {
	t.Helper()
	target, err := url.Parse(address)
	require.NoError(t, err)
	proxy := httputil.NewSingleHostReverseProxy(target)
	transport := &http.Transport{}
	proxy.Transport = transport
	v := &vendor{asked: make(chan *http.Request, 64), body: make(chan []byte, 64)}
	v.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		v.body <- body
		r.Body = io.NopCloser(bytes.NewReader(body))
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		v.Close()
		transport.CloseIdleConnections()
	})
	return v
}

// got is what a client got in place of its conversation.
type got struct {
	Object string
	Status string
	Output []map[string]any
	Usage  struct {
		Total int64 `json:"total_tokens"`
	}
}

// item is the only item of an answer, which stands for the conversation.
func (g *got) item(t *testing.T) string {
	t.Helper()
	require.Len(t, g.Output, 1)
	item := g.Output[0]
	assert.Equal(t, "compaction", item["type"])
	assert.Regexp(t, "^cmp_", item["id"])
	assert.Regexp(t, "^evalfleet:", item["encrypted_content"])
	return fmt.Sprintf(`{"type":"compaction","id":%q,"encrypted_content":%q}`, item["id"], item["encrypted_content"])
}

// compactedBy reads the answer to a request for a compaction, from its events if it is streamed.
func compactedBy(t *testing.T, answer string, stream bool) (g got) {
	t.Helper()
	if !stream {
		unmarshal(t, answer, &g)
		return g
	}
	var kinds []string
	var done []map[string]any
	for _, data := range dataOf(answer) {
		var event struct {
			Type     string
			Item     map[string]any
			Response *got
		}
		unmarshal(t, data, &event)
		kinds = append(kinds, strings.TrimPrefix(event.Type, "response."))
		if event.Type == "response.output_item.done" {
			done = append(done, event.Item)
		}
		if event.Type == "response.completed" {
			g = *event.Response
		}
	}
	assert.Equal(t, []string{"created", "in_progress", "output_item.added", "output_item.done", "completed"}, kinds)
	assert.Equal(t, g.Output, done)
	assert.Contains(t, answer, ": waiting", "the connection is kept alive while the summary is written")
	return g
}

// A client of the Responses API compacts its conversation as Codex does, and goes on with what it got, whatever the
// model is.
func TestAnyModelCompactsAConversation(t *testing.T) {
	t.Parallel()
	for model, tt := range map[string]struct {
		server func(testing.TB, ...providertest.Answer) string
		// noCalls is how the vendor is told that no tool may be called; empty where none is offered to it.
		noCalls string
		// token is that of the caller; one of a run has no search.
		token string
	}{
		claudeModel:     {providertest.MessageServer, `"tool_choice":{"type":"none"}`, "right"},
		geminiModel:     {providertest.GeminiServer, "", "right"},
		"openai/gpt-4o": {providertest.ChatServer, "", "right"},
		gptModel:        {providertest.ResponsesServer, "", "of-a-run"},
	} {
		for _, stream := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, streamed %t", model, stream), func(t *testing.T) {
				t.Parallel()
				v := behind(t, tt.server(t, providertest.Answer{Text: summaryOfIt}, providertest.Answer{Text: "Four now."}))
				g := serveWeb(t, v, func(c *modelgw.Config, _ *modelgw.Deps) {
					c.Anthropic.APIKey, c.Anthropic.BaseURL = config.NewSecret("k"), v.URL
					c.Google.APIKey, c.Google.BaseURL = config.NewSecret("k"), v.URL
					c.OpenAI.ResponsesAPI = new(model == gptModel)
				})
				ask := func(items string) string {
					body := fmt.Sprintf(`{"model":%q,"stream":%t,%s,"input":[%s]}`, model, stream, asCodex, items)
					return read(t, g.post(t, responsesPath, body, "Authorization", "Bearer "+tt.token))
				}
				g0 := compactedBy(t, ask(worked+","+trigger), stream)
				assert.Equal(t, "completed", g0.Status)
				assert.Positive(t, g0.Usage.Total)
				asked := string(waittest.For(t, v.body, "the request for a summary"))
				assert.Contains(t, asked, "Write the summary alone, and call no tools.")
				assert.Contains(t, asked, "Count the files.")
				assert.Contains(t, asked, tt.noCalls)
				assert.NotContains(t, asked, "compaction_trigger")

				said := ask(`{"role":"user","content":"Count the files."},` + g0.item(t) + `,{"role":"user","content":"And now?"}`)
				assert.Contains(t, said, "Four now.")
				asked = string(waittest.For(t, v.body, "the next turn"))
				assert.Contains(t, asked, summaryOfIt)
				assert.Less(t, strings.Index(asked, summaryOfIt), strings.Index(asked, "And now?"))
				assert.NotContains(t, asked, "evalfleet:")
			})
		}
	}
}

// The scripted model can summarise too, and a model of another vendor goes on with its summary, as bytes included.
func TestASummaryIsForEveryModel(t *testing.T) {
	t.Parallel()
	v := vendorWith(t, says(http.StatusOK, "application/json", `{"id":"resp_1","status":"completed","output":[]}`))
	g := serveWeb(t, v, throughResponses, withScript(t, "s", `default: {text: There are three files.}`))
	item := new(compactedBy(t, read(t, g.post(t, responsesPath, `{"model":"mockllm/s","input":[`+worked+`,`+trigger+`]}`)), false)).item(t)
	rest := `,"input":[{"role":"user","content":"Count the files."}, ` + item + `, {"role":"user","content":"And now?"}],"new" : 1}`
	require.Equal(t, http.StatusOK, g.post(t, responsesPath, `{"model":"openai/gpt-5"`+rest).StatusCode)
	asked := string(waittest.For(t, v.body, "the request that reaches the vendor"))
	assert.True(t, strings.HasPrefix(asked, `{"model":"gpt-5","input":[{"role":"user","content":"Count the files."}, {"type":"message","role":"user","content":[{"type":"input_text","text":"[CONTEXT COMPACTION SUMMARY]`), asked)
	assert.Contains(t, asked, summaryOfIt)
	assert.True(t, strings.HasSuffix(asked, `}]}, {"role":"user","content":"And now?"}],"new" : 1}`), asked)
	assert.Contains(t, read(t, g.post(t, responsesPath, `{"model":"mockllm/s"`+rest)), `"status":"completed"`)
}

// The path for nothing but a compaction has what the user said before what stands for the conversation.
func TestACompactionAlone(t *testing.T) {
	t.Parallel()
	g := serveWeb(t, nil, withScript(t, "s", `default: {text: There are three files.}`))
	earlier := `{"type":"compaction","encrypted_content":"` + dialect.Seal(chat.TextPart("It began.")) + `"},`
	const picture = `{"role":"user","content":[{"type":"input_text","text":"Look."},{"type":"input_image","image_url":"data:image/png;base64,aGk="}]},`
	for _, input := range []string{`[` + earlier + picture + worked + `]`, `[` + earlier + picture + worked + `,` + trigger + `]`} {
		said := compactedBy(t, read(t, g.post(t, compactPath, `{"model":"mockllm/s","instructions":"Be brief.","stream":true,"input":`+input+`}`)), false)
		assert.Equal(t, "response.compaction", said.Object)
		assert.Positive(t, said.Usage.Total)
		require.Len(t, said.Output, 3)
		for i, text := range []string{"Look.", "Count the files."} {
			assert.Equal(t, []any{"message", "user", "completed"}, []any{said.Output[i]["type"], said.Output[i]["role"], said.Output[i]["status"]})
			assert.Equal(t, text, said.Output[i]["content"].([]any)[0].(map[string]any)["text"])
		}
		assert.Equal(t, "data:image/png;base64,aGk=", said.Output[0]["content"].([]any)[1].(map[string]any)["image_url"])
		said.Output = said.Output[2:]
		said.item(t)
	}
	said := compactedBy(t, read(t, g.post(t, compactPath, `{"model":"mockllm/s","input":"q"}`)), false)
	assert.Len(t, said.Output, 2)
}

// Where the vendor compacts itself, its answer goes through as bytes; where its server has no such path, the model is
// asked for a summary.
func TestAVendorThatCompactsDoesIt(t *testing.T) {
	t.Parallel()
	const answered = `{"id":"resp_1","object":"response.compaction", "output":[{"type":"compaction","id":"cmp_1","encrypted_content":"c2VhbGVk"}],
		"usage":{"input_tokens":5,"output_tokens":2,"total_tokens":7}}`
	v := vendorWith(t, says(http.StatusOK, "application/json", answered))
	g := serveWeb(t, v, throughResponses)
	assert.Equal(t, answered, read(t, g.post(t, compactPath, `{"model":"openai/gpt-5", "input":"q"}`)))
	assert.JSONEq(t, `{"model":"gpt-5","input":"q"}`, string(waittest.For(t, v.body, "the request that reaches the vendor")))
	assert.Equal(t, compactPath, waittest.For(t, v.asked, "the request that reaches the vendor").URL.Path)
	assert.Equal(t, int64(7), g.spent(t))
	read(t, g.post(t, responsesPath, `{"model":"openai/gpt-5","input":[{"role":"user","content":"q"},`+trigger+`]}`))
	assert.Contains(t, string(waittest.For(t, v.body, "the trigger")), trigger)

	v = vendorWith(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == compactPath {
			says(http.StatusNotFound, "application/json", `{"detail":"Not Found"}`)(w, r)
			return
		}
		says(http.StatusOK, "application/json", `{"id":"resp_1","status":"completed","model":"m","output":[{"type":"message","role":"assistant","content":[{"type":"output_text","text":"It began."}]}],
			"usage":{"input_tokens":5,"output_tokens":2,"total_tokens":7}}`)(w, r)
	})
	g = serveWeb(t, v, throughResponses)
	said := compactedBy(t, read(t, g.post(t, compactPath, `{"model":"openai/gpt-5","input":"q"}`)), false)
	require.Len(t, said.Output, 2)
	assert.Equal(t, dialect.Seal(chat.TextPart("It began.")), said.Output[1]["encrypted_content"])
}

// What is no whole summary is an error that says so, in a stream too, and clients need not ask again.
func TestWhatIsNoSummaryIsAnError(t *testing.T) {
	t.Parallel()
	const call = `"tool_calls":[{"index":0,"id":"c1","type":"function","function":{"name":"exec_command","arguments":"{}"}}]`
	for why, tt := range map[string]struct{ message, stop string }{
		"wrote no summary":                   {`"content":" "`, "stop"},
		"called a tool":                      {`"content":"Let me see.",` + call, "tool_calls"},
		"cut off by the bound of its tokens": {`"content":"There are"`, "length"},
		"refused to summarise":               {`"content":null,"refusal":"No."`, "stop"},
		"refused":                            {`"content":"I"`, "content_filter"},
	} {
		t.Run(why, func(t *testing.T) {
			t.Parallel()
			const usage = `"usage":{"prompt_tokens":5,"completion_tokens":2,"total_tokens":7}`
			whole := fmt.Sprintf(`{"id":"x","model":"gpt-4o","choices":[{"index":0,"finish_reason":%q,"message":{"role":"assistant",%s}}],%s}`, tt.stop, tt.message, usage)
			g := serveWeb(t, vendorWith(t, says(http.StatusOK, "application/json", whole)))
			for _, path := range []string{responsesPath, compactPath} {
				answer := g.post(t, path, `{"model":"openai/gpt-4o","input":[`+worked+`,`+trigger+`]}`)
				assert.Equal(t, http.StatusUnprocessableEntity, answer.StatusCode)
				assert.Equal(t, "false", answer.Header.Get("X-Should-Retry"))
				message, kind, _ := failure(t, answer)
				assert.Contains(t, message, why)
				assert.Equal(t, "invalid_request_error", kind)
			}
			assert.Equal(t, int64(14), g.spent(t), "it took tokens all the same")

			events := fmt.Sprintf("data: {\"id\":\"x\",\"model\":\"gpt-4o\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",%s}}]}\n\n"+
				"data: {\"id\":\"x\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":%q}]}\n\ndata: {\"id\":\"x\",\"choices\":[],%s}\n\ndata: [DONE]\n\n", tt.message, tt.stop, usage)
			g = serveWeb(t, vendorWith(t, says(http.StatusOK, "text/event-stream", events)))
			stream := read(t, g.post(t, responsesPath, `{"model":"openai/gpt-4o","stream":true,"input":[`+worked+`,`+trigger+`]}`))
			assert.Contains(t, stream, why)
			assert.NotContains(t, stream, `"type":"compaction"`)
			assert.NotContains(t, stream, "response.completed")
		})
	}
}

func TestACompactionThatIsAskedForWrongly(t *testing.T) {
	t.Parallel()
	g := serveWeb(t, nil)
	for input, want := range map[string]string{
		`[` + trigger + `,{"role":"user","content":"q"}]`:                                           "must be the last item",
		`[{"role":"developer","content":"s"},` + trigger + `]`:                                      "has no conversation to compact",
		`[{"role":"user","content":"q"},{"type":"compaction","encrypted_content":"evalfleet:9:x"}]`: "an envelope without a summary",
	} {
		answer := g.post(t, responsesPath, `{"model":"mockllm/model","input":`+input+`}`)
		assert.Equal(t, http.StatusBadRequest, answer.StatusCode, input)
		message, _, _ := failure(t, answer)
		assert.Contains(t, message, want)
	}
	answer := g.post(t, compactPath, `{"model":"mockllm/model","input":"q","previous_response_id":"resp_1"}`)
	_, _, code := failure(t, answer)
	assert.Equal(t, "previous_response_not_found", code)
}

// A compaction is a call as any other: once under its key, and kept where the client wants it kept.
func TestACompactionIsMadeOnceUnderAKey(t *testing.T) {
	t.Parallel()
	g := serveWeb(t, nil, withScript(t, "s", `default: {text: There are three files.}`))
	body := `{"model":"mockllm/s","text":{"format":{"type":"json_schema","name":"n","schema":{"type":"object"}}},"input":[` + worked + `,` + trigger + `]}`
	var sealed []any
	for range 2 {
		said := compactedBy(t, read(t, g.post(t, responsesPath, body, "Idempotency-Key", "k")), false)
		sealed = append(sealed, said.Output[0]["encrypted_content"])
	}
	assert.Equal(t, sealed[0], sealed[1])
	assert.Len(t, g.calls(t), 1)
	for _, status := range []string{"", "evalfleet; hit"} {
		answer := g.post(t, compactPath, body, "Evalfleet-Cache", "1W")
		assert.Equal(t, status, answer.Header.Get("Cache-Status"))
		read(t, answer)
	}
	assert.Len(t, g.calls(t), 2)
}

// Where the requested model fails, a fallback compacts: in either lane of the requested one.
func TestAFallbackCompacts(t *testing.T) {
	t.Parallel()
	for _, lane := range []setup{throughResponses, func(c *modelgw.Config, _ *modelgw.Deps) { c.OpenAI.ResponsesAPI = new(false) }} {
		g := serveWeb(t, vendorWith(t, overloaded), lane, fallsBack("mockllm/model"))
		for _, stream := range []bool{true, false} {
			answer := g.post(t, responsesPath, fmt.Sprintf(`{"model":"openai/gpt-4o","stream":%t,"input":[%s,%s]}`, stream, worked, trigger))
			assert.Equal(t, "mockllm/model", answer.Header.Get("Evalfleet-Model"))
			said := compactedBy(t, read(t, answer), stream)
			said.item(t)
		}
		said := compactedBy(t, read(t, g.post(t, compactPath, `{"model":"openai/gpt-4o","input":"q"}`)), false)
		assert.Len(t, said.Output, 2)
	}
}

// A model whose server has no path for compactions is asked for a summary. Where it fails then, each fallback is asked
// once.
func TestEachFallbackIsAskedOnceForACompaction(t *testing.T) {
	t.Parallel()
	lacking := func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == compactPath {
			says(http.StatusNotFound, "application/json", `{"detail":"Not Found"}`)(w, r)
			return
		}
		overloaded(w, r)
	}
	v, other := vendorWith(t, lacking), vendorWith(t, overloaded)
	g := serveWeb(t, v, throughResponses, fallsBack("anthropic/claude-sonnet-4-5"), func(c *modelgw.Config, _ *modelgw.Deps) {
		c.Anthropic.APIKey, c.Anthropic.BaseURL = config.NewSecret("k"), other.URL
	})
	answer := g.post(t, compactPath, `{"model":"openai/gpt-4o","input":"q"}`)
	assert.Equal(t, http.StatusServiceUnavailable, answer.StatusCode, "%s", read(t, answer))
	assert.Len(t, v.body, 2, "for a compaction, and for a summary")
	assert.Len(t, other.body, 1)
}

// The summary of a fallback that is no whole one is refused as that of the requested model would be: a client that
// asked again would pay for another.
func TestARefusedSummaryOfAFallbackIsNotAskedForAgain(t *testing.T) {
	t.Parallel()
	cutOff := `{"id":"m","type":"message","role":"assistant","model":"claude-sonnet-4-5","content":[{"type":"text","text":"The"}],"stop_reason":"max_tokens","usage":{"input_tokens":9,"output_tokens":1}}`
	other := vendorWith(t, says(http.StatusOK, "application/json", cutOff))
	g := serveWeb(t, vendorWith(t, overloaded), throughResponses, fallsBack("anthropic/claude-sonnet-4-5"), func(c *modelgw.Config, _ *modelgw.Deps) {
		c.Anthropic.APIKey, c.Anthropic.BaseURL = config.NewSecret("k"), other.URL
	})
	for _, path := range []string{compactPath, responsesPath} {
		answer := g.post(t, path, fmt.Sprintf(`{"model":"openai/gpt-4o","input":[%s,%s]}`, worked, trigger))
		assert.Equal(t, http.StatusUnprocessableEntity, answer.StatusCode, path)
		assert.Equal(t, "false", answer.Header.Get("X-Should-Retry"), path)
		assert.Contains(t, read(t, answer), "the summary was cut off", path)
	}
	assert.Len(t, other.body, 2)
}
