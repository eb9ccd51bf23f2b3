package openaicompat_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/config"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/openaicompat"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/providertest"
)

// What OpenRouter sent of reasoning goes back without what it could not verify; of other reasoning what can be read.
func TestReasoningGoesBackToOpenRouter(t *testing.T) {
	t.Parallel()
	part := func(reasoning, signature, summary string, redacted bool) *contentv1.Content {
		r := &contentv1.Reasoning{Reasoning: reasoning, Redacted: redacted}
		if signature != "" {
			r.Signature = &signature
		}
		if summary != "" {
			r.Summary = &summary
		}
		return &contentv1.Content{Part: &contentv1.Content_Reasoning{Reasoning: r}}
	}
	const details = `[{"type":"reasoning.text","text":"a"},{"type":"reasoning.text","text":"b","signature":"s"},` +
		`{"type":"reasoning.text","text":"c","format":"openai-responses-v1"},{"type":"reasoning.encrypted","data":"d"}]`
	const kept = `[{"type":"reasoning.text","text":"b","signature":"s"},` +
		`{"type":"reasoning.text","text":"c","format":"openai-responses-v1"},{"type":"reasoning.encrypted","data":"d"}]`
	for i, test := range []struct {
		model string
		part  *contentv1.Content
		want  string
	}{
		{"acme/river", part("a", "reasoning-details://"+details, "", false), `{"role":"assistant","content":"\nx","reasoning_details":` + kept + `}`},
		{"acme/river", part("a", "reasoning-details://no list", "", false), `{"role":"assistant","content":"\n<think>\na\n</think>\n\nx"}`},
		{"acme/river", part("seal", "sig", "", true), `{"role":"assistant","content":"\nx"}`},
		{"acme/river", part("seal", "sig", "short", true), `{"role":"assistant","content":"\n<think>\nshort\n</think>\n\nx"}`},
		{"deepseek/deepseek-v4-pro", part("a", "", "", false), `{"role":"assistant","content":"\nx","reasoning_content":"a"}`},
		{"deepseek/deepseek-v4-pro", part("a", "reasoning-details://"+details, "", false), `{"role":"assistant","content":"\nx","reasoning_content":"a","reasoning_details":` + kept + `}`},
	} {
		m := chat.Assistant("")
		m.Content = chat.ListContent(test.part, chat.TextPart("x"))
		members, _ := sent(t, "openrouter", test.model, &provider.Request{Messages: []*modelv1.ChatMessage{m}})
		var messages []json.RawMessage
		require.NoError(t, json.Unmarshal(members["messages"], &messages))
		assert.JSONEq(t, test.want, string(messages[0]), i)
	}
}

// Requests for Anthropic's models behind OpenRouter are marked for their cache, unless caching is off.
func TestMarksForAnthropicBehindOpenRouter(t *testing.T) {
	t.Parallel()
	const mark = `"cache_control":{"type":"ephemeral"}`
	user := chat.User("")
	user.Content = chat.ListContent(chat.TextPart("a"), chat.TextPart("b"))
	r := func(c *modelv1.GenerateConfig, last ...*modelv1.ChatMessage) *provider.Request {
		return &provider.Request{Messages: append([]*modelv1.ChatMessage{chat.System("s"), user}, last...), Config: c}
	}
	members, _ := sent(t, "openrouter", "anthropic/claude-sonnet-4.5", r(nil))
	assert.JSONEq(t, `[{"role":"system","content":[{"type":"text","text":"s",`+mark+`}]},
		{"role":"user","content":[{"type":"text","text":"a",`+mark+`},{"type":"text","text":"b"}]}]`, string(members["messages"]))
	members, _ = sent(t, "openrouter", "anthropic/claude-sonnet-4.5", r(nil, chat.Assistant("c")))
	assert.JSONEq(t, `[{"role":"system","content":[{"type":"text","text":"s",`+mark+`}]},
		{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b",`+mark+`}]},{"role":"assistant","content":"c"}]`, string(members["messages"]))
	for model, c := range map[string]*modelv1.GenerateConfig{
		"acme/river": nil, "anthropic/claude-2": nil, "anthropic/claude-sonnet-4.5": {CachePrompt: modelv1.CachePrompt_CACHE_PROMPT_OFF},
	} {
		members, _ = sent(t, "openrouter", model, r(c))
		assert.NotContains(t, string(members["messages"]), "cache_control", model)
	}
}

// Arguments of OpenRouter have their types, and are no arguments of other services.
func TestArgumentsOfOpenRouter(t *testing.T) {
	t.Parallel()
	kind := kindOf(t, "openrouter", nil)
	for args, says := range map[string]string{
		`{"models": "m"}`: "models must be a list of texts", `{"models": [1]}`: "models must be a list of texts", `{"transforms": {}}`: "transforms must be a list of texts",
		`{"provider": []}`: "provider must be an object", `{"reasoning_enabled": 1}`: "reasoning_enabled must be true or false", `{"modles": []}`: "unknown argument",
		`[]`: "where an object is wanted",
	} {
		_, err := kind.Open(provider.Spec{Model: "m", Account: provider.DefaultAccount, Args: args})
		assert.ErrorContains(t, err, says, args)
	}
	_, err := kindOf(t, "together", nil).Open(provider.Spec{Model: "m", Account: provider.DefaultAccount, Args: `{"models": ["m"]}`})
	require.ErrorContains(t, err, "unknown argument")
}

// search is the tool that searches the web, with options for Perplexity.
func search(options string) []*toolv1.ToolInfo {
	return []*toolv1.ToolInfo{{Name: "web_search", ParametersJson: `{"type":"object"}`, OptionsJson: options}}
}

// Perplexity searches by itself; other tools, old options and contradictions are refused before anything is sent.
func TestPerplexitysSearch(t *testing.T) {
	t.Parallel()
	forced := chat.ModeChoice(toolv1.ToolChoiceMode_TOOL_CHOICE_MODE_ANY)
	for i, test := range []struct {
		tools  []*toolv1.ToolInfo
		choice *toolv1.ToolChoice
		extra  string
		want   string // the tools and the choice, or what the error says
	}{
		{search(`{"perplexity": {"max_tokens": 5}}`), nil, "", `[{"type":"web_search","max_tokens":5}] `},
		{search(`{"perplexity": true}`), forced, "", `[{"type":"web_search"}] {"type":"web_search"}`},
		{search(`{"perplexity": true}`), nil, `{"tools":[{"type":"fetch_url"}]}`, `[{"type":"fetch_url"},{"type":"web_search"}] `},
		{search(`{"perplexity": true}`), nil, `{"tools":1}`, "tools must be a list"},
		{search(`{"perplexity": true}`), forced, `{"tool_choice":"auto"}`, "tool_choice is given twice"},
		{search(`{"perplexity": 7}`), nil, "", "must be an object, or true"},
		{search(`{"perplexity": {"return_images": true}}`), nil, "", "no option return_images"},
		{search(`{"openai": {}}`), nil, "", "takes no tool but web_search"},
		{search(""), nil, "", "takes no tool but web_search"},
		{[]*toolv1.ToolInfo{{Name: "bash", OptionsJson: `{"perplexity":{}}`}}, nil, "", "the tool bash is none"},
	} {
		p := openAt(t, "perplexity", "sonar", providertest.ResponsesServer(t, providertest.Answer{Text: "fine"}), "")
		c := &modelv1.GenerateConfig{}
		if test.extra != "" {
			c.ExtraBodyJson = &test.extra
		}
		response, err := p.Generate(t.Context(), &provider.Request{Messages: []*modelv1.ChatMessage{chat.User("q")}, Tools: test.tools, ToolChoice: test.choice, Config: c, Record: provider.RecordAll})
		if err != nil {
			require.ErrorContains(t, err, test.want, i)
			continue
		}
		var members map[string]json.RawMessage
		require.NoError(t, json.Unmarshal([]byte(response.Call.GetRequestJson()), &members))
		assert.Equal(t, test.want, string(members["tools"])+" "+string(members["tool_choice"]), i)
	}
}

// What Perplexity found is cited once, and kept, also where the answer is streamed.
func TestWhatPerplexityFound(t *testing.T) {
	t.Parallel()
	const answer = `{"id":"r","status":"completed","model":"served","output":[
		{"type":"search_results","results":[{"url":"https://a.example","title":"A"},{"url":"https://b.example"},{"no":"url"}]},
		{"type":"fetch_url_results","contents":[{"url":"https://a.example"}]},
		{"type":"message","id":"m","role":"assistant","content":[{"type":"output_text","text":"x","annotations":[{"type":"url_citation","url":"https://b.example","start_index":0,"end_index":1}]}]}],
		"usage":{"input_tokens":3,"output_tokens":2,"total_tokens":5,"tool_calls_details":{"search_web":{"invocation":2}}}}`
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var asked struct{ Stream bool }
		assert.NoError(t, json.NewDecoder(r.Body).Decode(&asked))
		if !asked.Stream {
			w.Header().Set("Content-Type", "application/json")
			_, _ = fmt.Fprint(w, answer)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		document, err := json.Marshal(map[string]any{"type": "response.completed", "response": json.RawMessage(answer)})
		assert.NoError(t, err)
		_, _ = fmt.Fprintf(w, "data: %s\n\n", document)
	}))
	t.Cleanup(server.Close)
	for _, args := range []string{`{"stream": false}`, `{"stream": true}`} {
		response, err := openAt(t, "perplexity", "sonar", server.URL, args).Generate(t.Context(), &provider.Request{Messages: []*modelv1.ChatMessage{chat.User("q")}, Config: &modelv1.GenerateConfig{}})
		require.NoError(t, err)
		assert.JSONEq(t, `{"search_results":[{"url":"https://a.example","title":"A"},{"url":"https://b.example"},{"no":"url"}],
			"fetch_url_results":[{"url":"https://a.example"}],"num_search_queries":2}`, response.Output.GetMetadataJson(), args)
		var cited []string
		for _, citation := range chat.Parts(chat.FirstMessage(response.Output).GetContent())[0].GetText().GetCitations() {
			cited = append(cited, citation.GetUrl())
		}
		assert.Equal(t, []string{"https://b.example", "https://a.example"}, cited, args)
		assert.Equal(t, "perplexity/sonar", chat.FirstMessage(response.Output).GetModel())
	}
}

// What a tool gave that cannot be read is an error, so that it is not lost.
func TestWhatPerplexityFoundThatIsUnknown(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"image_results", "item_of_tomorrow"} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = fmt.Fprintf(w, `{"id":"r","status":"completed","output":[{"type":%q},
				{"type":"message","content":[{"type":"output_text","text":"x"}]}]}`, kind)
		}))
		t.Cleanup(server.Close)
		asked := &provider.Request{Messages: []*modelv1.ChatMessage{chat.User("q")}, Config: &modelv1.GenerateConfig{}}
		_, err := openAt(t, "perplexity", "sonar", server.URL, `{"stream": false}`).Generate(t.Context(), asked)
		require.ErrorContains(t, err, kind)
	}
}

func TestModelsOfPerplexity(t *testing.T) {
	t.Parallel()
	kind := kindOf(t, "perplexity", nil)
	for _, name := range []string{"sonar-pro", "perplexity/sonar-deep-research"} {
		_, err := kind.Open(provider.Spec{Model: name, Account: provider.DefaultAccount})
		require.ErrorContains(t, err, "no longer serves")
	}
	_, err := kind.Open(provider.Spec{Model: "sonar", Account: provider.DefaultAccount, Args: `{"responses_api": false}`})
	require.ErrorContains(t, err, "responses_api cannot be false")
}

// Azure takes the key in a header of its own, at its own path, and a name without its organization.
func TestAzuresAddress(t *testing.T) {
	t.Parallel()
	upstream := openAt(t, "azureai", "microsoft/phi-4", "https://models.example", "").Capabilities().Upstreams[0]
	assert.Equal(t, "https://models.example/chat/completions?api-version=2024-05-01-preview", upstream.URL)
	assert.Equal(t, "phi-4", upstream.Model)
	header := http.Header{"Api-Key": {"the client's"}, "Authorization": {"the client's"}}
	upstream.Authorize(header)
	assert.Equal(t, http.Header{"Api-Key": {"k"}, "Authorization": {"Bearer k"}}, header)
	assert.Equal(t, "https://models.example/openai/v1/chat/completions", openAt(t, "groq", "m", "https://models.example", "").Capabilities().Upstreams[0].URL)
}

// OpenRouter says in a 200 what failed behind it, also beside choices: that is no answer.
func TestFailuresWithinAnswersOfOpenRouter(t *testing.T) {
	t.Parallel()
	const begun = `data: {"choices":[{"index":0,"delta":{"content":"so far"}}]}` + "\n\ndata: "
	for body, want := range map[string]provider.Class{
		`{"error":{"code":502,"message":"down"},"choices":[]}`: provider.Transient,
		`{"choices":[{"index":0,"message":{"role":"assistant","content":"so far"},"finish_reason":"error"}],"error":{"code":429,"message":"down"}}`: provider.RateLimit,
		begun + `{"error":{"code":400,"message":"down"},"choices":[{"index":0,"delta":{"content":""},"finish_reason":"error"}]}` + "\n\n":           provider.Final,
	} {
		err := generateAt(t, "openrouter", body)
		failure, ok := provider.As(err)
		require.True(t, ok, "%s: %v", body, err)
		assert.Equal(t, want, failure.Class, body)
		assert.Equal(t, "down", failure.Message, body)
	}
}

// The key is in no error and in no record, also if a server repeats it in an error that follows choices.
func TestAKeyInAnErrorAfterChoices(t *testing.T) {
	t.Parallel()
	const key = "the-key-of-the-account"
	for kind, body := range map[string]string{
		"application/json":  `{"choices":[],"error":{"code":502,"message":"no access with ` + key + `"}}`,
		"text/event-stream": `data: {"choices":[{"index":0,"delta":{"content":"so far"}}],"error":{"code":502,"message":"no access with ` + key + `"}}` + "\n\n",
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", kind)
			_, _ = fmt.Fprint(w, body)
		}))
		t.Cleanup(server.Close)
		account := openaicompat.Account{Account: provider.Account{APIKey: config.NewSecret(key), BaseURL: server.URL}}
		p, err := kindOf(t, "openrouter", openaicompat.Services{"openrouter": {Account: account}}).
			Open(provider.Spec{Model: "m", Account: provider.DefaultAccount, Args: fmt.Sprintf(`{"stream": %t}`, kind == "text/event-stream")})
		require.NoError(t, err)
		_, err = p.Generate(t.Context(), &provider.Request{Messages: []*modelv1.ChatMessage{chat.User("q")}, Config: &modelv1.GenerateConfig{}, Record: provider.RecordAll})
		require.ErrorContains(t, err, "no access with", kind)
		assert.NotContains(t, err.Error(), key, kind)
		failure, _ := provider.As(err)
		assert.NotContains(t, failure.Message+failure.Cause.Error(), key, kind)
		assert.Contains(t, failure.Call.GetResponseJson(), "no access with", kind)
		assert.NotContains(t, failure.Call.GetResponseJson(), key, kind)
	}
}

// An answer of OpenRouter that cannot be read may be repeated, streamed or not.
func TestBrokenAnswersOfOpenRouter(t *testing.T) {
	t.Parallel()
	for _, body := range []string{`{"choices":[{"ind`, `{"id":"c1"}`, "data: {\"choices\":[{\"ind\n\n"} {
		assert.Equal(t, provider.Transient, provider.ClassOfError(generateAt(t, "openrouter", body)), body)
	}
}

// generateAt is the error of a call of a service that gives one answer, as a stream if it begins so.
func generateAt(t *testing.T, service, body string) error {
	t.Helper()
	stream := strings.HasPrefix(body, "data: ")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", map[bool]string{true: "text/event-stream", false: "application/json"}[stream])
		_, _ = fmt.Fprint(w, body)
	}))
	t.Cleanup(server.Close)
	p := openAt(t, service, "m", server.URL, fmt.Sprintf(`{"stream": %t}`, stream))
	_, err := p.Generate(t.Context(), &provider.Request{Messages: []*modelv1.ChatMessage{chat.User("q")}, Config: &modelv1.GenerateConfig{}})
	return err
}
