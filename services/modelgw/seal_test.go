package modelgw_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/config"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/services/modelgw"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/openai"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/providertest"
)

const (
	claudeModel = "anthropic/claude-sonnet-4-5"
	gptModel    = "openai/gpt-5"
	geminiModel = "google/gemini-3-pro"
)

// sealers are vendors that seal what their models think, by the models.
type sealers map[string]*providertest.Sealing

// serveSealers serves the endpoints of a gateway with a vendor of each kind.
func serveSealers(t *testing.T, changes ...setup) (*web, sealers) {
	t.Helper()
	at := sealers{claudeModel: providertest.SealingAnthropic(t), gptModel: providertest.SealingOpenAI(t), geminiModel: providertest.SealingGoogle(t)}
	return serveWeb(t, nil, append([]setup{func(c *modelgw.Config, _ *modelgw.Deps) {
		c.Anthropic.APIKey, c.Anthropic.BaseURL = config.NewSecret("k"), at[claudeModel].URL
		c.OpenAI.APIKey, c.OpenAI.BaseURL, c.OpenAI.ResponsesAPI = config.NewSecret("k"), at[gptModel].URL, new(true)
		c.Google.APIKey, c.Google.BaseURL = config.NewSecret("k"), at[geminiModel].URL
		c.Endpoints.MaxRetries = 0
	}}, changes...)...), at
}

// talker is a client in a vendor's format that keeps its conversation, and sends back what it was given.
type talker interface {
	// ask adds a question, and result the result of the call with an id.
	ask(question string)
	result(id string)
	// request is the next request to a model.
	request(model string, stream bool) (path, body string)
	// hear adds an answer and returns the id of its call; empty if it has none.
	hear(t *testing.T, answer string, stream bool) (call string)
}

// turns are the turns of a conversation as a client holds them.
type turns []json.RawMessage

func (c *turns) add(format string, args ...any) {
	*c = append(*c, json.RawMessage(fmt.Sprintf(format, args...)))
}

func (c *turns) list() string {
	document, _ := json.Marshal(*c)
	return string(document)
}

func unmarshal(t *testing.T, document string, into any) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(document), into), document)
}

// dataOf are the data of the events of a stream.
func dataOf(stream string) (all []string) {
	for line := range strings.SplitSeq(stream, "\n") {
		if data, ok := strings.CutPrefix(strings.TrimSpace(line), "data: "); ok && data != "[DONE]" {
			all = append(all, data)
		}
	}
	return all
}

// messagesTalker talks Anthropic's Messages API.
type messagesTalker struct{ turns }

func (c *messagesTalker) ask(q string) { c.add(`{"role":"user","content":%q}`, q) }

func (c *messagesTalker) result(id string) {
	c.add(`{"role":"user","content":[{"type":"tool_result","tool_use_id":%q,"content":"seen"}]}`, id)
}

func (c *messagesTalker) request(model string, stream bool) (path, body string) {
	return messagesPath, fmt.Sprintf(`{"model":%q,"max_tokens":4000,"stream":%t,"tools":[{"name":%q,"input_schema":{"type":"object"}}],"messages":%s}`,
		model, stream, providertest.SealedTool, c.list())
}

func (c *messagesTalker) hear(t *testing.T, answer string, stream bool) (call string) {
	t.Helper()
	var said struct{ Content []map[string]any }
	if !stream {
		unmarshal(t, answer, &said)
	}
	for _, data := range dataOf(answer) {
		var event struct {
			Type  string
			Block map[string]any `json:"content_block"`
			Delta map[string]any
		}
		unmarshal(t, data, &event)
		switch event.Type {
		case "content_block_start":
			said.Content = append(said.Content, event.Block)
		case "content_block_delta":
			block := said.Content[len(said.Content)-1]
			for name, value := range event.Delta {
				if before, ok := block[name].(string); ok && name != "type" {
					block[name] = before + value.(string)
				}
			}
		}
	}
	for _, block := range said.Content {
		if block["type"] == "tool_use" {
			call, _ = block["id"].(string)
		}
	}
	content, err := json.Marshal(said.Content)
	require.NoError(t, err)
	c.add(`{"role":"assistant","content":%s}`, content)
	return call
}

// responsesTalker talks OpenAI's Responses API.
type responsesTalker struct{ turns }

func (c *responsesTalker) ask(q string) { c.add(`{"role":"user","content":%q}`, q) }

func (c *responsesTalker) result(id string) {
	c.add(`{"type":"function_call_output","call_id":%q,"output":"seen"}`, id)
}

func (c *responsesTalker) request(model string, stream bool) (path, body string) {
	return responsesPath, fmt.Sprintf(`{"model":%q,"store":false,"include":["reasoning.encrypted_content"],"stream":%t,"tools":[{"type":"function","name":%q,"parameters":{"type":"object"}}],"input":%s}`,
		model, stream, providertest.SealedTool, c.list())
}

func (c *responsesTalker) hear(t *testing.T, answer string, stream bool) (call string) {
	t.Helper()
	var said struct {
		Response struct{ Output []json.RawMessage }
	}
	if events := dataOf(answer); stream {
		unmarshal(t, events[len(events)-1], &said)
	} else {
		unmarshal(t, answer, &said.Response)
	}
	for _, item := range said.Response.Output {
		var known struct {
			Type string
			ID   string `json:"call_id"`
		}
		unmarshal(t, string(item), &known)
		if known.Type == "function_call" {
			call = known.ID
		}
		c.add("%s", item)
	}
	return call
}

// chatTalker talks OpenAI's chat completions.
type chatTalker struct{ turns }

func (c *chatTalker) ask(q string) { c.add(`{"role":"user","content":%q}`, q) }

func (c *chatTalker) result(id string) {
	c.add(`{"role":"tool","tool_call_id":%q,"content":"seen"}`, id)
}

func (c *chatTalker) request(model string, stream bool) (path, body string) {
	return chatPath, fmt.Sprintf(`{"model":%q,"stream":%t,"tools":[{"type":"function","function":{"name":%q,"parameters":{"type":"object"}}}],"messages":%s}`,
		model, stream, providertest.SealedTool, c.list())
}

func (c *chatTalker) hear(t *testing.T, answer string, stream bool) (call string) {
	t.Helper()
	message := map[string]any{"role": "assistant", "content": ""}
	if !stream {
		var said struct {
			Choices []struct{ Message map[string]any }
		}
		unmarshal(t, answer, &said)
		message = said.Choices[0].Message
	}
	for _, data := range dataOf(answer) {
		var event struct {
			Choices []struct{ Delta map[string]any }
		}
		unmarshal(t, data, &event)
		for _, choice := range event.Choices {
			for name, value := range choice.Delta {
				switch value := value.(type) {
				case string:
					before, _ := message[name].(string)
					message[name] = before + value
				case []any:
					if before, ok := message[name].([]any); ok && name == "tool_calls" { // Arguments go on.
						function := before[0].(map[string]any)["function"].(map[string]any)
						more := value[0].(map[string]any)["function"].(map[string]any)["arguments"].(string)
						function["arguments"] = function["arguments"].(string) + more
						continue
					}
					message[name] = value
				}
			}
		}
	}
	message["role"] = "assistant"
	if calls, ok := message["tool_calls"].([]any); ok {
		call, _ = calls[0].(map[string]any)["id"].(string)
	}
	document, err := json.Marshal(message)
	require.NoError(t, err)
	c.add("%s", document)
	return call
}

// geminiTalker talks Google's Gemini API.
type geminiTalker struct{ turns }

func (c *geminiTalker) ask(q string) { c.add(`{"role":"user","parts":[{"text":%q}]}`, q) }

func (c *geminiTalker) result(id string) {
	member := fmt.Sprintf(`"id":%q,`, id)
	if id == noID {
		member = ""
	}
	c.add(`{"role":"user","parts":[{"functionResponse":{%s"name":%q,"response":{"output":"seen"}}}]}`, member, providertest.SealedTool)
}

func (c *geminiTalker) request(model string, stream bool) (path, body string) {
	method := ":generateContent"
	if stream {
		method = ":streamGenerateContent?alt=sse"
	}
	return geminiPath + model + method, fmt.Sprintf(`{"tools":[{"functionDeclarations":[{"name":%q,"parameters":{"type":"OBJECT"}}]}],"contents":%s}`, providertest.SealedTool, c.list())
}

// noID stands for the id of a call that has none.
const noID = "none"

func (c *geminiTalker) hear(t *testing.T, answer string, stream bool) (call string) {
	t.Helper()
	pieces := []string{answer}
	if stream {
		pieces = dataOf(answer)
	}
	var parts []map[string]any
	for _, piece := range pieces {
		var said struct {
			Candidates []struct {
				Content struct{ Parts []map[string]any }
			}
		}
		unmarshal(t, piece, &said)
		for _, candidate := range said.Candidates {
			parts = append(parts, candidate.Content.Parts...)
		}
	}
	for _, part := range parts {
		if made, ok := part["functionCall"].(map[string]any); ok {
			if call, _ = made["id"].(string); call == "" {
				call = noID
			}
		}
	}
	document, err := json.Marshal(parts)
	require.NoError(t, err)
	c.add(`{"role":"model","parts":%s}`, document)
	return call
}

var talkers = map[string]func() talker{
	"messages":  func() talker { return &messagesTalker{} },
	"responses": func() talker { return &responsesTalker{} },
	"chat":      func() talker { return &chatTalker{} },
	"gemini":    func() talker { return &geminiTalker{} },
}

// switches are the models of the requests of a conversation, of which every second one has the result of a call.
var switches = []string{
	claudeModel, gptModel, geminiModel, claudeModel, claudeModel, geminiModel, gptModel, gptModel, geminiModel, geminiModel, claudeModel, claudeModel, gptModel, claudeModel,
}

// A conversation goes on with any model, amid calls too. Each vendor gets the seals that it made, all and unchanged,
// and no other.
func TestAConversationGoesOnWithTheModelOfAnotherVendor(t *testing.T) {
	t.Parallel()
	for format, talks := range talkers {
		for _, stream := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s stream=%t", format, stream), func(t *testing.T) {
				t.Parallel()
				g, vendors := serveSealers(t)
				client, call := talks(), ""
				for i, model := range switches {
					if call != "" {
						client.result(call)
					} else {
						client.ask(fmt.Sprintf("question %d", i))
					}
					own := vendors[model].Made()
					path, body := client.request(model, stream)
					answer := g.post(t, path, body)
					said := read(t, answer)
					require.Equal(t, http.StatusOK, answer.StatusCode, "request %d: %s: %s", i, said, vendors[model].Latest())
					assert.ElementsMatch(t, own, vendors[model].Returned(), "request %d to %s", i, model)
					assert.NotContains(t, vendors[model].Latest(), "evalfleet", "request %d", i)
					call = client.hear(t, said, stream)
					assert.Equal(t, i%2 == 0, call != "", "request %d: %s", i, said)
				}
			})
		}
	}
}

// What another vendor's model thought is text for a model that takes open reasoning so.
func TestWhatIsReadableOfAnotherVendorsReasoningGoesOn(t *testing.T) {
	t.Parallel()
	for format, talks := range talkers {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			g, vendors := serveSealers(t)
			client := talks()
			client.ask("question")
			path, body := client.request(gptModel, false)
			client.result(client.hear(t, read(t, g.post(t, path, body)), false))
			path, body = client.request(claudeModel, false)
			answer := g.post(t, path, body)
			require.Equal(t, http.StatusOK, answer.StatusCode, read(t, answer))
			latest := vendors[claudeModel].Latest()
			assert.Contains(t, strings.NewReplacer(`\u003c`, "<", `\u003e`, ">").Replace(latest), "<think>thought 1</think>")
		})
	}
}

// talk makes a call by gRPC, whole or as a stream, and returns the conversation with its answer.
func talk(t *testing.T, g *web, model string, stream bool, messages []*modelv1.ChatMessage) []*modelv1.ChatMessage {
	t.Helper()
	r := &modelv1.GenerateRequest{
		Parent: project, Model: model, Messages: messages, Config: &modelv1.GenerateConfig{MaxRetries: new(int32(0))},
		Tools: []*toolv1.ToolInfo{{Name: providertest.SealedTool, Description: "Looks.", ParametersJson: `{"type":"object","properties":{}}`}},
	}
	var answer *modelv1.GenerateResponse
	var err error
	if stream {
		opened, failed := g.models.StreamGenerate(t.Context(), &modelv1.StreamGenerateRequest{Request: r})
		require.NoError(t, failed)
		events, failed := receive(t, opened)
		require.NoError(t, failed, "%s", model)
		answer = events[len(events)-1].GetCompleted()
	} else {
		answer, err = g.models.Generate(t.Context(), r)
		require.NoError(t, err, "%s", model)
	}
	message := chat.FirstMessage(answer.GetOutput())
	messages = append(messages, message)
	for _, call := range message.GetToolCalls() {
		return append(messages, chat.ToolMessage(&toolv1.ToolResult{CallId: call.GetId(), Function: call.GetFunction(), Content: chat.TextContent("seen")}))
	}
	return append(messages, chat.User("go on"))
}

func TestACallersMessagesGoOnWithTheModelOfAnotherVendor(t *testing.T) {
	t.Parallel()
	for _, stream := range []bool{false, true} {
		t.Run(fmt.Sprintf("stream=%t", stream), func(t *testing.T) {
			t.Parallel()
			g, vendors := serveSealers(t)
			messages := []*modelv1.ChatMessage{chat.User("question")}
			for i, model := range switches {
				own := vendors[model].Made()
				messages = talk(t, g, model, stream, messages)
				assert.ElementsMatch(t, own, vendors[model].Returned(), "request %d to %s", i, model)
			}
		})
	}
}

// A fallback is of another vendor, and the requested model comes back after it.
func TestAFallbackGoesOnWithTheConversation(t *testing.T) {
	t.Parallel()
	falls := func(c *modelgw.Config, _ *modelgw.Deps) {
		c.Fallbacks = map[string][]string{claudeModel: {geminiModel}, gptModel: {claudeModel}, geminiModel: {gptModel}}
	}
	for format, talks := range talkers {
		for _, stream := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s stream=%t", format, stream), func(t *testing.T) {
				t.Parallel()
				g, vendors := serveSealers(t, falls)
				client, call := talks(), ""
				for i, failing := range []string{"", claudeModel, "", "", claudeModel, ""} {
					vendors[claudeModel].Fail(map[bool]int{true: http.StatusServiceUnavailable}[failing == claudeModel])
					if call != "" {
						client.result(call)
					} else {
						client.ask("question")
					}
					path, body := client.request(claudeModel, stream)
					answer := g.post(t, path, body)
					said := read(t, answer)
					require.Equal(t, http.StatusOK, answer.StatusCode, "request %d: %s", i, said)
					call = client.hear(t, said, stream)
				}
				assert.Len(t, vendors[geminiModel].Made(), 2)
			})
		}
	}
}

// A conversation that stays in the client's format is bytes, its seals included, whoever made them.
func TestBareSealsGoThroughUntouched(t *testing.T) {
	t.Parallel()
	v := vendorWith(t, says(http.StatusOK, "application/json", `{}`))
	g := serveWeb(t, v, throughResponses, func(c *modelgw.Config, _ *modelgw.Deps) {
		c.Anthropic.APIKey, c.Anthropic.BaseURL = config.NewSecret("k"), v.URL
		c.Google.APIKey, c.Google.BaseURL = config.NewSecret("k"), v.URL
	})
	for path, body := range map[string]string{
		messagesPath:  `{"model":"claude-sonnet-4-5" ,"max_tokens":5, "messages":[{"role":"assistant","content":[{"type":"thinking", "thinking":"t","signature":"c2ln"}, {"type":"redacted_thinking","data":"ZGF0YQ=="}]}]}`,
		responsesPath: `{"model":"gpt-5", "input":[ {"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"c2ln"}]}`,
		geminiPath + geminiModel + ":generateContent": `{"contents":[{"role":"model", "parts":[{"text":"a" ,"thoughtSignature":"c2ln"}]}]}`,
	} {
		sent := strings.NewReplacer(`"claude`, `"anthropic/claude`, `"gpt`, `"openai/gpt`).Replace(body)
		read(t, g.post(t, path, sent))
		assert.Equal(t, body, string(waittest.For(t, v.body, "the body that reaches the vendor")), path)
	}
}

func TestTokensAreCountedWithoutEnvelopes(t *testing.T) {
	t.Parallel()
	g, vendors := serveSealers(t)
	client := &messagesTalker{}
	client.ask("question")
	path, body := client.request(gptModel, false)
	client.result(client.hear(t, read(t, g.post(t, path, body)), false))
	_, body = client.request(claudeModel, false)
	answer := g.post(t, messagesPath+"/count_tokens", body)
	require.Equal(t, http.StatusOK, answer.StatusCode, read(t, answer))
	assert.Contains(t, vendors[claudeModel].Counted(), "thought 1")
	assert.NotContains(t, vendors[claudeModel].Counted(), "evalfleet")
}

// OpenAI's seals are those of an organization, and Google's of whoever made them: another account, or another address
// after a reload of the configuration, gets none.
func TestAConversationGoesOnWithAnotherAccount(t *testing.T) {
	t.Parallel()
	other := providertest.SealingOpenAI(t)
	var current modelgw.Config
	g, vendors := serveSealers(t, func(c *modelgw.Config, _ *modelgw.Deps) {
		c.OpenAI.Accounts = map[string]openai.Account{"other": {Account: provider.Account{APIKey: config.NewSecret("k"), BaseURL: other.URL}, ResponsesAPI: new(true)}}
		current = *c
	})
	ask := func(account string, messages []*modelv1.ChatMessage) []*modelv1.ChatMessage {
		t.Helper()
		answer, err := g.models.Generate(t.Context(), &modelv1.GenerateRequest{Parent: project, Model: gptModel, Account: account, Messages: messages, Config: &modelv1.GenerateConfig{MaxRetries: new(int32(0))}})
		require.NoError(t, err)
		return append(messages, chat.FirstMessage(answer.GetOutput()), chat.User("go on"))
	}
	messages := ask("", []*modelv1.ChatMessage{chat.User("question")})
	messages = ask("other", messages)
	messages = ask("", messages)
	assert.Equal(t, vendors[gptModel].Made()[:1], vendors[gptModel].Returned(), "its own")

	moved := providertest.SealingOpenAI(t)
	current.OpenAI.BaseURL = moved.URL
	require.NoError(t, g.service.Reload(t.Context(), current))
	messages = ask("", messages)
	messages = ask("", messages)
	assert.Len(t, moved.Returned(), 1)
	ask("other", messages)
	assert.Len(t, other.Returned(), 1)
}

// An answer from the response cache has the sealer that made it. An account at another address is another server, whose
// answers are its own.
func TestACachedAnswerIsOfTheServerThatSealedIt(t *testing.T) {
	t.Parallel()
	var current modelgw.Config
	g, vendors := serveSealers(t, func(c *modelgw.Config, _ *modelgw.Deps) { current = *c })
	first := chat.User("question")
	ask := func(cached bool, messages ...*modelv1.ChatMessage) *modelv1.ChatMessage {
		t.Helper()
		answer, err := g.models.Generate(t.Context(), &modelv1.GenerateRequest{Parent: project, Model: gptModel, Messages: messages, Config: &modelv1.GenerateConfig{
			MaxRetries: new(int32(0)), Cache: &modelv1.CacheSetting{Enabled: cached},
		}})
		require.NoError(t, err)
		return chat.FirstMessage(answer.GetOutput())
	}
	ask(true, first)
	found := ask(true, first)
	require.Len(t, vendors[gptModel].Made(), 1, "the answer is from the cache")
	ask(false, first, found, chat.User("go on"))
	assert.Len(t, vendors[gptModel].Returned(), 1, "the vendor gets its own")

	moved := providertest.SealingOpenAI(t)
	current.OpenAI.BaseURL = moved.URL
	require.NoError(t, g.service.Reload(t.Context(), current))
	ask(true, first)
	assert.Len(t, moved.Made(), 1, "the other server answers for itself")
	ask(false, first, found, chat.User("go on"))
	assert.Empty(t, moved.Returned())

	current.OpenAI.BaseURL = vendors[gptModel].URL + "/"
	require.NoError(t, g.service.Reload(t.Context(), current))
	before := len(vendors[gptModel].Made())
	ask(true, first)
	assert.Len(t, vendors[gptModel].Made(), before, "its answer is kept")
}

// A client may hold a conversation from before seals were in envelopes: its seals are bare, or in envelopes that do not
// say whose they are.
func TestAnOlderConversationGoesOn(t *testing.T) {
	t.Parallel()
	for format, talks := range talkers {
		for _, model := range []string{claudeModel, gptModel, geminiModel} {
			t.Run(format+" "+model, func(t *testing.T) {
				t.Parallel()
				g, vendors := serveSealers(t)
				client := talks()
				client.ask("question")
				path, body := client.request(model, false)
				client.result(client.hear(t, read(t, g.post(t, path, body)), false))
				for name, older := range map[string]func(envelope string) string{"bare": bareSeal, "first form": firstForm} {
					path, body = client.request(model, false)
					answer := g.post(t, path, exchangeEnvelopes(t, body, older))
					require.Equal(t, http.StatusOK, answer.StatusCode, "%s: %s: %s", name, read(t, answer), vendors[model].Latest())
				}
			})
		}
	}
}

// An envelope that does not say whose seal it has is of another vendor than the client's.
func TestAnOlderEnvelopeDoesNotReachTheClientsVendor(t *testing.T) {
	t.Parallel()
	for format, model := range map[string]string{"responses": gptModel, "gemini": geminiModel} {
		g, vendors := serveSealers(t)
		client := talkers[format]()
		client.ask("question")
		path, body := client.request(claudeModel, false)
		client.result(client.hear(t, read(t, g.post(t, path, body)), false))
		path, body = client.request(model, false)
		answer := g.post(t, path, exchangeEnvelopes(t, body, firstForm))
		assert.Equal(t, http.StatusOK, answer.StatusCode, "%s: %s: %s", format, read(t, answer), vendors[model].Latest())
	}
}

// bareSeal is the seal in an envelope as it was sent without one.
func bareSeal(envelope string) string {
	return dialect.Unseal(envelope).GetReasoning().GetReasoning()
}

// firstForm is the envelope in its first form.
func firstForm(envelope string) string {
	part := dialect.Unseal(envelope)
	part.GetReasoning().SealedBy = ""
	return strings.Replace(dialect.Seal(part), ":2:", ":", 1)
}

var (
	envelopes        = regexp.MustCompile(`evalfleet:2:[A-Za-z0-9+/=]*`)
	encodedEnvelopes = regexp.MustCompile(`"ZXZhbGZsZWV0O[A-Za-z0-9+/=]*"`)
)

// exchangeEnvelopes exchanges the envelopes in a request.
func exchangeEnvelopes(t *testing.T, body string, exchange func(string) string) string {
	t.Helper()
	body = encodedEnvelopes.ReplaceAllStringFunc(body, func(quoted string) string {
		raw, err := base64.StdEncoding.DecodeString(strings.Trim(quoted, `"`))
		require.NoError(t, err)
		exchanged := exchange(string(raw))
		if strings.HasPrefix(exchanged, "evalfleet:") {
			exchanged = base64.StdEncoding.EncodeToString([]byte(exchanged))
		}
		return `"` + exchanged + `"`
	})
	return envelopes.ReplaceAllStringFunc(body, exchange)
}

// A conversation that the gateway holds goes on as one that is sent whole.
func TestAHeldConversationGoesOnWithTheModelOfAnotherVendor(t *testing.T) {
	t.Parallel()
	g, vendors := serveSealers(t)
	var prefix *modelv1.MessagePrefix
	next := chat.User("question")
	for i, model := range []string{claudeModel, gptModel, geminiModel, claudeModel} {
		own := vendors[model].Made()
		answer, err := g.models.Generate(t.Context(), &modelv1.GenerateRequest{
			Parent: project, Model: model, Prefix: prefix, Messages: []*modelv1.ChatMessage{next}, Keep: true, Config: &modelv1.GenerateConfig{MaxRetries: new(int32(0))},
		})
		require.NoError(t, err, "request %d", i)
		assert.ElementsMatch(t, own, vendors[model].Returned(), "request %d", i)
		prefix, next = answer.GetPrefix(), chat.User("go on")
	}
}
