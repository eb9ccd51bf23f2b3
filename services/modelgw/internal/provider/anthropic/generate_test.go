package anthropic_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/config"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/anthropic"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/azureauth"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/providertest"
)

// asked is a request that reached a vendor's server.
type asked struct {
	path   string
	header http.Header
	body   map[string]any
}

// vendor is a server that gives answers by path, in order; those of one path last once they are all given.
type vendor struct {
	mu      sync.Mutex
	asked   []asked
	answers map[string][]string
}

func newVendor(t *testing.T, answers map[string][]string) (*vendor, string) {
	t.Helper()
	v := &vendor{answers: answers}
	server := httptest.NewServer(v)
	t.Cleanup(server.Close)
	return v, server.URL
}

// ServeHTTP implements http.Handler.
func (v *vendor) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	got := asked{path: r.URL.Path, header: r.Header}
	_ = json.NewDecoder(r.Body).Decode(&got.body)
	v.mu.Lock()
	defer v.mu.Unlock()
	v.asked = append(v.asked, got)
	answers := v.answers[r.URL.Path]
	if len(answers) == 0 {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	if len(answers) > 1 {
		v.answers[r.URL.Path] = answers[1:]
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, answers[0])
}

const plain = `{"id":"m","model":"served","content":[{"type":"text","text":"x"}],"stop_reason":"end_turn","usage":{"input_tokens":1,"output_tokens":2}}`

func openModel(t *testing.T, c anthropic.Config, spec provider.Spec) (provider.Provider, error) {
	t.Helper()
	kind, closeIdle := anthropic.Kind(c)
	t.Cleanup(func() { _ = closeIdle() })
	if spec.Account == "" {
		spec.Account = provider.DefaultAccount
	}
	return kind.Open(spec)
}

func generate(t *testing.T, c anthropic.Config, spec provider.Spec, r *provider.Request) *provider.Response {
	t.Helper()
	p, err := openModel(t, c, spec)
	require.NoError(t, err)
	if r.Messages == nil {
		r.Messages = []*modelv1.ChatMessage{chat.User("q")}
	}
	if r.Config == nil {
		r.Config = &modelv1.GenerateConfig{MaxTokens: new(int64(100))}
	}
	response, err := p.Generate(t.Context(), r)
	require.NoError(t, err)
	return response
}

func TestWhatAnAccountSends(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		config           anthropic.Config
		account, args    string
		key, bearer      string
		betas, versioned string
	}{
		"a key":           {config: anthropic.Config{APIKey: config.NewSecret("k")}, key: "k", versioned: "2026-10-21"},
		"a token":         {config: anthropic.Config{APIKey: config.NewSecret("k"), AuthToken: config.NewSecret("t")}, bearer: "Bearer t", betas: "oauth-2025-04-20", versioned: "2026-10-21"},
		"no key":          {config: anthropic.Config{KeyOptional: true, Version: "2023-06-01"}, versioned: "2023-06-01"},
		"another account": {config: anthropic.Config{AuthToken: config.NewSecret("t")}, account: "spare", key: "s", versioned: "2026-10-21"},
		"betas, each once": {
			config: anthropic.Config{APIKey: config.NewSecret("k"), Betas: []string{"z"}}, args: `{"betas": "b, a,z"}`, key: "k", betas: "a,b,z", versioned: "2026-10-21",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v, url := newVendor(t, map[string][]string{"/v1/messages": {plain}})
			test.config.BaseURL = url
			test.config.Accounts = map[string]provider.Account{"spare": {APIKey: config.NewSecret("s"), BaseURL: url + "/"}}
			generate(t, test.config, provider.Spec{Model: "claude-3-5-haiku", Account: test.account, Args: test.args}, &provider.Request{})
			require.Len(t, v.asked, 1)
			h := v.asked[0].header
			assert.Equal(t, test.key, h.Get("X-Api-Key"))
			assert.Equal(t, test.bearer, h.Get("Authorization"))
			assert.Equal(t, test.versioned, h.Get("Anthropic-Version"))
			assert.Equal(t, test.betas, h.Get("Anthropic-Beta"))
		})
	}
}

func TestWhatIsNotConfiguredOrNotBuiltIsSaid(t *testing.T) {
	t.Parallel()
	c := anthropic.Config{
		APIKey: config.NewSecret("k"), Accounts: map[string]provider.Account{"empty": {}},
		Azure: anthropic.AzureConfig{Accounts: map[string]azureauth.Account{"keyless": {Account: provider.Account{BaseURL: "http://127.0.0.1:1"}}}},
	}
	const invalid = errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST
	for name, test := range map[string]struct {
		spec   provider.Spec
		reason errorsv1.ErrorReason
		says   string
	}{
		"no such account":   {provider.Spec{Model: "m", Account: "spare"}, invalid, "configured: default, empty"},
		"no key":            {provider.Spec{Model: "m", Account: "empty"}, errorsv1.ErrorReason_ERROR_REASON_PROVIDER_NOT_CONFIGURED, "ANTHROPIC_API_KEY"},
		"a foreign address": {provider.Spec{Model: "m", BaseURL: "http://127.0.0.1:1"}, invalid, "allowed_base_urls"},
		"unknown argument":  {provider.Spec{Model: "m", Args: `{"cache_tll": "1h"}`}, invalid, "cache_tll"},
		"a bad lifetime":    {provider.Spec{Model: "m", Args: `{"cache_ttl": "2h"}`}, invalid, "5m, 1h or auto"},
		"bad streaming":     {provider.Spec{Model: "m", Args: `{"streaming": "yes"}`}, invalid, "streaming"},
		"bad extra body":    {provider.Spec{Model: "m", Args: `{"extra_body": [1]}`}, invalid, "extra_body"},
		"another model":     {provider.Spec{Model: "m", Args: `{"extra_body": {"model": "dear"}}`}, invalid, "must not name a model"},
		"no key at Azure":   {provider.Spec{Model: "azure/claude-sonnet-4-5", Account: "keyless"}, errorsv1.ErrorReason_ERROR_REASON_PROVIDER_NOT_CONFIGURED, "AZUREAI_ANTHROPIC_API_KEY"},
		"no region":         {provider.Spec{Model: "bedrock/anthropic.claude"}, errorsv1.ErrorReason_ERROR_REASON_PROVIDER_NOT_CONFIGURED, "AWS_REGION"},
		"no project":        {provider.Spec{Model: "vertex/claude-sonnet-4-5"}, errorsv1.ErrorReason_ERROR_REASON_PROVIDER_NOT_CONFIGURED, "ANTHROPIC_VERTEX_PROJECT_ID"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := openModel(t, c, test.spec)
			require.Error(t, err)
			assert.True(t, rpcerr.Is(err, test.reason), "%v", err)
			assert.Contains(t, err.Error(), test.says)
		})
	}
	p, err := openModel(t, c, provider.Spec{Model: "claude-opus-4-7"})
	require.NoError(t, err)
	_, err = p.Generate(t.Context(), &provider.Request{Config: &modelv1.GenerateConfig{ReasoningTokens: new(int64(9))}})
	require.ErrorContains(t, err, "reasoning_effort")
}

func TestAPausedTurnIsGivenBackUntilItEnds(t *testing.T) {
	t.Parallel()
	v, url := newVendor(t, map[string][]string{"/v1/messages": {
		`{"id":"a","model":"served","content":[{"type":"server_tool_use","id":"s","name":"web_search","input":{"query": "q"}}],"stop_reason":"pause_turn","usage":{"input_tokens":5,"output_tokens":1}}`,
		`{"id":"b","model":"served","content":[{"type":"web_search_tool_result","tool_use_id":"s","content":[]},{"type":"text","text":"x"}],"stop_reason":"end_turn","usage":{"input_tokens":7,"output_tokens":2}}`,
	}})
	response := generate(t, anthropic.Config{APIKey: config.NewSecret("k"), BaseURL: url}, provider.Spec{Model: "claude-3-5-haiku"}, &provider.Request{Record: provider.RecordAll})
	require.Len(t, v.asked, 2)
	turns := v.asked[1].body["messages"].([]any)
	require.Len(t, turns, 2)
	assert.Equal(t, map[string]any{"role": "assistant", "content": []any{
		map[string]any{"type": "server_tool_use", "id": "s", "name": "web_search", "input": map[string]any{"query": "q"}},
	}}, turns[1])
	assert.Len(t, chat.FirstMessage(response.Output).GetContent().GetList().GetParts(), 2)
	assert.Equal(t, int64(12), response.Output.GetUsage().GetInputTokens())
	assert.Equal(t, int64(5), response.Output.GetInputContextTokens(), "the context is that of the call")
	assert.Contains(t, response.Call.GetResponseJson(), "pause_turn")
	assert.Len(t, response.Billing.Passes, 2, "each request has the price of its own input")
}

// Turns before a request that fails have been paid for. What is recorded of the failure is the first request, and no
// answer to another.
func TestTheUsageOfPausedTurnsCountsWhenALaterRequestFails(t *testing.T) {
	t.Parallel()
	const paused = `{"id":"a","model":"served","content":[{"type":"text","text":"so far"}],"stop_reason":"pause_turn","usage":{"input_tokens":5,"output_tokens":1}}`
	for name, tt := range map[string]struct {
		status int
		body   string
		stops  bool
	}{
		"an error": {http.StatusInternalServerError, `{"type":"error","error":{"type":"api_error","message":"the second answer"}}`, false},
		"a stop":   {http.StatusBadRequest, `{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long"}}`, true},
	} {
		requests := 0
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			if requests++; requests > 1 {
				w.WriteHeader(tt.status)
				_, _ = io.WriteString(w, tt.body)
				return
			}
			_, _ = io.WriteString(w, paused)
		}))
		p, err := openModel(t, anthropic.Config{APIKey: config.NewSecret("k"), BaseURL: server.URL}, provider.Spec{Model: "claude-sonnet-4-5", Account: provider.DefaultAccount})
		require.NoError(t, err)
		var counted int64
		response, err := p.Generate(t.Context(), &provider.Request{
			Messages: []*modelv1.ChatMessage{chat.User("q")}, Config: &modelv1.GenerateConfig{}, Record: provider.RecordFailures,
			Unfinished: func(said *modelv1.ModelUsage, _ int64) { counted += said.GetInputTokens() },
		})
		server.Close()
		if tt.stops {
			require.NoError(t, err, name)
			assert.Equal(t, int64(5), response.Output.GetUsage().GetInputTokens(), name)
			continue
		}
		failure, ok := provider.As(err)
		require.True(t, ok, "%s: %v", name, err)
		assert.Equal(t, int64(5), counted, name)
		assert.NotContains(t, failure.Call.String(), "the second answer", name)
	}
}

func TestThinkingIsCountedWhereTheServerDoesNotSay(t *testing.T) {
	t.Parallel()
	const thought = `{"model":"served","content":[{"type":"thinking","thinking":"hm","signature":"s"},{"type":"thinking","thinking":"so","signature":"t"}],"stop_reason":"end_turn","usage":{"input_tokens":1,"output_tokens":9`
	for name, test := range map[string]struct {
		answer, count string
		want          *int64
		asked         int
	}{
		"counted":         {thought + `}}`, `{"input_tokens":4}`, new(int64(8)), 3},
		"said":            {thought + `,"output_tokens_details":{"thinking_tokens":3}}}`, ``, new(int64(3)), 1},
		"cannot be known": {thought + `}}`, `{"error":{"message":"no"}}`, nil, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v, url := newVendor(t, map[string][]string{"/v1/messages": {test.answer}, "/v1/messages/count_tokens": {test.count}})
			response := generate(t, anthropic.Config{APIKey: config.NewSecret("k"), BaseURL: url}, provider.Spec{Model: "claude-sonnet-4-5"}, &provider.Request{})
			assert.Equal(t, test.want, response.Output.GetUsage().ReasoningTokens)
			assert.Len(t, v.asked, test.asked)
		})
	}
}

func TestWhatIsLeftOutOrChangedIsSaid(t *testing.T) {
	t.Parallel()
	v, url := newVendor(t, map[string][]string{"/v1/messages": {plain}})
	response := generate(t, anthropic.Config{APIKey: config.NewSecret("k"), BaseURL: url}, provider.Spec{Model: "claude-sonnet-5-5"}, &provider.Request{
		Messages:   []*modelv1.ChatMessage{chat.User("q"), chat.Assistant("a"), chat.System("late"), chat.User("q")},
		Tools:      []*toolv1.ToolInfo{{Name: "f"}},
		ToolChoice: chat.FunctionChoice("f"),
		Config:     &modelv1.GenerateConfig{Temperature: new(0.5), TopP: new(0.9), TopK: new(int32(3)), MaxTokens: new(int64(9))},
	})
	assert.Len(t, response.Warnings, 2)
	for _, name := range []string{"temperature", "top_p", "top_k"} {
		assert.NotContains(t, v.asked[0].body, name)
	}
	assert.JSONEq(t, `{"tool_choice_degraded":{"requested":{"type":"tool","name":"f"},"used":{"type":"auto"}}}`, response.Output.GetMetadataJson())
}

func TestAServersOwnBlocksGoBackWithTheFeatureThatMadeThem(t *testing.T) {
	t.Parallel()
	kept := func(document string) []*modelv1.ChatMessage {
		m := chat.Assistant("")
		m.Content = chat.ListContent(&contentv1.Content{Part: &contentv1.Content_Data{Data: &contentv1.Data{Json: document}}})
		return []*modelv1.ChatMessage{chat.User("q"), m, chat.User("q")}
	}
	compaction := kept(`{"compaction_metadata":{"type":"anthropic_compact","content":"short"}}`)
	fallback := kept(`{"fallback_metadata":{"type":"anthropic_fallback","from":{"model":"a"},"to":{"model":"b"}}}`)
	const trigger = `{"edits":[{"type":"compact_20260112","trigger":{"type":"input_tokens","value":%d}}]}`
	for name, test := range map[string]struct {
		model      string
		messages   []*modelv1.ChatMessage
		config     *modelv1.GenerateConfig
		betas      string
		management string
	}{
		"compaction, new":          {"claude-opus-4-8", compaction, nil, "compact-2026-01-12", fmt.Sprintf(trigger, 990000)},
		"compaction, old":          {"claude-sonnet-4-5", compaction, nil, "compact-2026-01-12", fmt.Sprintf(trigger, 190000)},
		"compaction, told how":     {"claude-opus-4-8", compaction, &modelv1.GenerateConfig{ExtraBodyJson: new(`{"context_management":{"edits":[{"type":"compact_20260112"}]}}`)}, "compact-2026-01-12", `{"edits":[{"type":"compact_20260112"}]}`},
		"fallback":                 {"claude-opus-4-8", fallback, nil, "server-side-fallback-2026-06-01", ""},
		"no fallback to ask for":   {"claude-haiku-5-5", compaction[:1], &modelv1.GenerateConfig{FallbackModels: &modelv1.StringList{Values: []string{"x"}}}, "thinking-binding-controls-2026-08-01", ""},
		"a conversation of no one": {"claude-opus-4-8", compaction[:1], nil, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v, url := newVendor(t, map[string][]string{"/v1/messages": {plain}})
			generate(t, anthropic.Config{APIKey: config.NewSecret("k"), BaseURL: url}, provider.Spec{Model: test.model}, &provider.Request{Messages: test.messages, Config: test.config})
			assert.Equal(t, test.betas, v.asked[0].header.Get("anthropic-beta"))
			management, err := json.Marshal(v.asked[0].body["context_management"])
			require.NoError(t, err)
			assert.JSONEq(t, cmp.Or(test.management, "null"), string(management))
			assert.NotContains(t, v.asked[0].body, "fallbacks")
		})
	}
}

func TestThePromptIsMarkedUnlessCachingIsOff(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		setting modelv1.CachePrompt
		want    any
	}{
		{modelv1.CachePrompt_CACHE_PROMPT_UNSPECIFIED, map[string]any{"type": "ephemeral", "ttl": "1h"}},
		{modelv1.CachePrompt_CACHE_PROMPT_AUTO, map[string]any{"type": "ephemeral", "ttl": "1h"}},
		{modelv1.CachePrompt_CACHE_PROMPT_ON, map[string]any{"type": "ephemeral", "ttl": "1h"}},
		{modelv1.CachePrompt_CACHE_PROMPT_OFF, nil},
	} {
		v, url := newVendor(t, map[string][]string{"/v1/messages": {plain}})
		spec := provider.Spec{Model: "claude-sonnet-4-5", Args: `{"cache_ttl": "1h"}`}
		generate(t, anthropic.Config{APIKey: config.NewSecret("k"), BaseURL: url}, spec, &provider.Request{
			Messages: []*modelv1.ChatMessage{chat.System("s"), chat.User("q")}, Config: &modelv1.GenerateConfig{CachePrompt: test.setting},
		})
		body := v.asked[0].body
		assert.Equal(t, test.want, body["cache_control"], test.setting)
		assert.Equal(t, test.want, body["system"].([]any)[0].(map[string]any)["cache_control"], test.setting)
	}
}

func TestAStreamThatNeverBeganIsAFailureAndOneThatIsCutIsNot(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		"": "before anything came",
		"data: {\"type\":\"message_start\",\"message\":{\"model\":\"s\"}}\n\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"hal\"}}\n\n": "",
		"data: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"busy\"}}\n\n":                                                                                       "answered 529: busy",
		"data: nonsense\n\n": "no message",
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, body)
		}))
		p, err := openModel(t, anthropic.Config{APIKey: config.NewSecret("k"), BaseURL: server.URL}, provider.Spec{Model: "claude-sonnet-4-5", Args: `{"streaming": true}`})
		require.NoError(t, err)
		response, err := p.Generate(t.Context(), &provider.Request{Messages: []*modelv1.ChatMessage{chat.User("q")}, Config: &modelv1.GenerateConfig{}})
		if want == "" {
			require.NoError(t, err)
			assert.Equal(t, "hal", chat.Completion(response.Output))
			assert.Equal(t, modelv1.StopReason_STOP_REASON_UNKNOWN, chat.StopReason(response.Output))
		} else {
			require.ErrorContains(t, err, want)
		}
		server.Close()
	}
}

func TestARecordHoldsNoKey(t *testing.T) {
	t.Parallel()
	response := generate(t, anthropic.Config{APIKey: config.NewSecret("sk-secret"), BaseURL: providertest.MessageServer(t, providertest.Answer{Text: "x"})},
		provider.Spec{Model: "claude-3-5-haiku"}, &provider.Request{Record: provider.RecordAll})
	assert.NotContains(t, response.Call.GetRequestJson()+response.Call.GetResponseJson(), "sk-secret")
}

// A model that thinks within a budget is sent no choice among its tools but that of none, which is said where another
// was asked for.
func TestAChoiceThatIsNotSentBesideABudgetIsSaid(t *testing.T) {
	t.Parallel()
	const says = "claude-sonnet-4-5 is sent no choice among the tools while it thinks within a budget; it may call any, or none"
	named := chat.FunctionChoice("f")
	for _, tt := range []struct {
		choice *toolv1.ToolChoice
		tokens *int64
		want   []string
	}{
		{named, new(int64(2048)), []string{says}},
		{chat.ModeChoice(toolv1.ToolChoiceMode_TOOL_CHOICE_MODE_ANY), new(int64(2048)), []string{says}},
		{chat.ModeChoice(toolv1.ToolChoiceMode_TOOL_CHOICE_MODE_NONE), new(int64(2048)), nil},
		{chat.ModeChoice(toolv1.ToolChoiceMode_TOOL_CHOICE_MODE_AUTO), new(int64(2048)), nil},
		{named, nil, nil},
	} {
		setup := providertest.GoldenSetup{APIKey: "k", BaseURL: providertest.MessageServer(t, providertest.Answer{Text: "a"})}
		p, err := open(t, setup).Open(provider.Spec{Model: "claude-sonnet-4-5", Account: provider.DefaultAccount})
		require.NoError(t, err)
		response, err := p.Generate(t.Context(), &provider.Request{
			Messages: []*modelv1.ChatMessage{chat.User("q")}, Tools: []*toolv1.ToolInfo{{Name: "f"}}, ToolChoice: tt.choice, Record: provider.RecordAll,
			Config: &modelv1.GenerateConfig{MaxTokens: new(int64(4096)), ReasoningTokens: tt.tokens},
		})
		require.NoError(t, err)
		assert.Equal(t, tt.want, response.Warnings)
		none := tt.choice.GetMode() == toolv1.ToolChoiceMode_TOOL_CHOICE_MODE_NONE
		assert.Equal(t, none, strings.Contains(response.Call.GetRequestJson(), `"tool_choice":{"type":"none"}`))
	}
}

// The choice among tools is where the API has the wish for one call at a time: while a model thinks within a budget,
// that wish alone is sent.
func TestOneCallAtATimeIsAskedForBesideABudget(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		parallel *bool
		choice   string
	}{
		{new(false), `"tool_choice":{"type":"auto","disable_parallel_tool_use":true}`},
		{new(true), ""},
		{nil, ""},
	} {
		setup := providertest.GoldenSetup{APIKey: "k", BaseURL: providertest.MessageServer(t, providertest.Answer{Text: "a"})}
		p, err := open(t, setup).Open(provider.Spec{Model: "claude-sonnet-4-5", Account: provider.DefaultAccount})
		require.NoError(t, err)
		response, err := p.Generate(t.Context(), &provider.Request{
			Messages: []*modelv1.ChatMessage{chat.User("q")}, Tools: []*toolv1.ToolInfo{{Name: "f"}},
			ToolChoice: chat.ModeChoice(toolv1.ToolChoiceMode_TOOL_CHOICE_MODE_AUTO), Record: provider.RecordAll,
			Config: &modelv1.GenerateConfig{MaxTokens: new(int64(4096)), ReasoningTokens: new(int64(2048)), ParallelToolCalls: tt.parallel},
		})
		require.NoError(t, err)
		assert.Empty(t, response.Warnings)
		if tt.choice == "" {
			assert.NotContains(t, response.Call.GetRequestJson(), "tool_choice")
		} else {
			assert.Contains(t, response.Call.GetRequestJson(), tt.choice)
		}
	}
}

// A budget is sent as it is given: the vendor says which ones it takes.
func TestABudgetOfZeroIsSent(t *testing.T) {
	t.Parallel()
	server := providertest.MessageServer(t, providertest.Answer{Text: "a"})
	setup := providertest.GoldenSetup{APIKey: "k", BaseURL: server}
	p, err := open(t, setup).Open(provider.Spec{Model: "claude-sonnet-4-5", Account: provider.DefaultAccount})
	require.NoError(t, err)
	response, err := p.Generate(t.Context(), &provider.Request{
		Messages: []*modelv1.ChatMessage{chat.User("q")}, Record: provider.RecordAll,
		Config: &modelv1.GenerateConfig{ReasoningTokens: new(int64(0))},
	})
	require.NoError(t, err)
	assert.Contains(t, response.Call.GetRequestJson(), `"thinking":{"type":"enabled","budget_tokens":0,`)
}

// Clients of other vendors send no thinking back. The server takes no turn without it while the model thinks within a
// budget.
func TestAClientsTurnWithoutThinkingIsContinuedWithoutIt(t *testing.T) {
	t.Parallel()
	result := chat.ToolMessage(&toolv1.ToolResult{CallId: "c", Function: "f", Content: chat.TextContent("r")})
	loop := []*modelv1.ChatMessage{chat.User("q"), chat.Assistant("", chat.Call("c", "f", "{}")), result}
	for _, tt := range []struct {
		messages []*modelv1.ChatMessage
		client   bool
		thinks   bool
	}{{loop, true, false}, {loop, false, true}, {loop[:1], true, true}} {
		setup := providertest.GoldenSetup{APIKey: "k", BaseURL: providertest.MessageServer(t, providertest.Answer{Text: "a"})}
		p, err := open(t, setup).Open(provider.Spec{Model: "claude-sonnet-4-5", Account: provider.DefaultAccount})
		require.NoError(t, err)
		response, err := p.Generate(t.Context(), &provider.Request{
			Messages: tt.messages, Tools: []*toolv1.ToolInfo{{Name: "f"}}, Record: provider.RecordAll, Client: tt.client,
			Config: &modelv1.GenerateConfig{MaxTokens: new(int64(4096)), ReasoningTokens: new(int64(2048))},
		})
		require.NoError(t, err)
		assert.Equal(t, tt.thinks, strings.Contains(response.Call.GetRequestJson(), `"thinking"`))
	}
}

// A client of an endpoint sees no warnings. How long a model thinks is its wish, and a call its demand.
func TestAClientsDemandForACallGoesBeforeThinkingWithinABudget(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		choice *toolv1.ToolChoice
		thinks bool
	}{
		{chat.FunctionChoice("f"), false},
		{chat.ModeChoice(toolv1.ToolChoiceMode_TOOL_CHOICE_MODE_ANY), false},
		{chat.ModeChoice(toolv1.ToolChoiceMode_TOOL_CHOICE_MODE_AUTO), true},
	} {
		setup := providertest.GoldenSetup{APIKey: "k", BaseURL: providertest.MessageServer(t, providertest.Answer{Text: "a"})}
		p, err := open(t, setup).Open(provider.Spec{Model: "claude-sonnet-4-5", Account: provider.DefaultAccount})
		require.NoError(t, err)
		response, err := p.Generate(t.Context(), &provider.Request{
			Messages: []*modelv1.ChatMessage{chat.User("q")}, Tools: []*toolv1.ToolInfo{{Name: "f"}}, ToolChoice: tt.choice, Record: provider.RecordAll, Client: true,
			Config: &modelv1.GenerateConfig{MaxTokens: new(int64(4096)), ReasoningTokens: new(int64(2048))},
		})
		require.NoError(t, err)
		assert.Empty(t, response.Warnings)
		assert.Equal(t, tt.thinks, strings.Contains(response.Call.GetRequestJson(), `"thinking"`))
		assert.Equal(t, !tt.thinks, strings.Contains(response.Call.GetRequestJson(), `"tool_choice"`))
	}
}
