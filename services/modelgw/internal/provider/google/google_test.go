package google_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/evalfleet/evalfleet/pkg/chat"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/google"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/providertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t testing.TB, setup providertest.GoldenSetup) provider.Kind {
	t.Helper()
	var c google.Config
	key, baseURL := &c.APIKey, &c.BaseURL
	if setup.Service == "vertex" {
		key, baseURL = &c.Vertex.APIKey, &c.Vertex.BaseURL
	}
	setup.Load(t, &c, key, baseURL)
	kind, closeIdle := google.Kind(c)
	t.Cleanup(func() { _ = closeIdle() })
	return kind
}

// opened opens a model whose API is at an address.
func opened(t testing.TB, model, address string) provider.Provider {
	t.Helper()
	p, err := open(t, providertest.GoldenSetup{APIKey: "key-of-the-account", BaseURL: address}).Open(provider.Spec{Model: model, Account: provider.DefaultAccount})
	require.NoError(t, err)
	return p
}

// keeps is the address of a server that keeps the body of the last request.
func keeps(t *testing.T) (address string, sent *string) {
	t.Helper()
	sent = new(string)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		*sent = string(body)
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"candidates":[{"content":{"parts":[{"text":"a"}]},"finishReason":"STOP"}]}`)
	}))
	t.Cleanup(server.Close)
	return server.URL, sent
}

func TestGoldenRequests(t *testing.T) {
	t.Parallel()
	providertest.Golden(t, "request", []string{"providers/request/google/*.json"}, open)
}

func TestGoldenResponses(t *testing.T) {
	t.Parallel()
	providertest.Golden(t, "response", []string{"providers/response/google/*.json"}, open)
}

func TestSuite(t *testing.T) {
	t.Parallel()
	providertest.Run(t, providertest.Harness{New: func(t *testing.T, answers ...providertest.Answer) provider.Provider {
		return opened(t, "gemini-2.5-flash", providertest.GeminiServer(t, answers...))
	}})
}

// No option of a configuration is dropped silently.
func TestEveryOptionIsSentOrSaidNotToBe(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"gemini-2.0-flash", "gemini-2.5-flash", "gemini-2.5-pro", "gemini-3-pro-preview", "gemma-3-27b-it", "gemini-flash-latest", "gemini-2.5-flash-image"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			providertest.Options(t, func(t *testing.T, root string) provider.Provider { return opened(t, name, root) })
		})
	}
}

// Of options that ask for the same, and of those that a model cannot take, the one that is not sent is named.
func TestWhatGoesBeforeAnOptionIsSaid(t *testing.T) {
	t.Parallel()
	both := &modelv1.GenerateConfig{ReasoningEffort: new("low"), ReasoningTokens: new(int64(2048))}
	noEffort := &modelv1.GenerateConfig{ReasoningEffort: new("none"), ReasoningTokens: new(int64(2048))}
	noTokens := &modelv1.GenerateConfig{ReasoningEffort: new("low"), ReasoningTokens: new(int64(0))}
	effortFirst := []provider.Unsent{{Option: "reasoning_tokens", Why: "since reasoning_effort takes precedence"}}
	tokensFirst := []provider.Unsent{{Option: "reasoning_effort", Why: "since reasoning_tokens takes precedence"}}
	for name, tt := range map[string]struct {
		model  string
		config *modelv1.GenerateConfig
		unsent []provider.Unsent
	}{
		"tokens before an effort":              {"gemini-2.5-flash", both, tokensFirst},
		"an effort before tokens":              {"gemini-3-pro-preview", both, effortFirst},
		"no effort before tokens":              {"gemini-2.5-flash", noEffort, effortFirst},
		"no tokens before an effort":           {"gemini-3-flash-preview", noTokens, tokensFirst},
		"a seed":                               {"gemini-2.5-flash", &modelv1.GenerateConfig{Seed: new(int64(4))}, []provider.Unsent{{Option: "seed", Why: "since inspect_ai does not send it"}}},
		"a model that always reasons":          {"gemini-2.5-pro", noEffort, append([]provider.Unsent{{Option: "reasoning_effort", Why: "whose reasoning cannot be switched off"}}, effortFirst...)},
		"a model that always reasons a little": {"gemini-3-pro-preview", noTokens, []provider.Unsent{{Option: "reasoning_tokens", Why: "whose reasoning cannot be switched off"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			unsent := provider.Fit(opened(t, tt.model, ""), tt.config).Unsent
			assert.Equal(t, tt.unsent, unsent)
		})
	}
}

// Of the models that take a budget, the large ones take the greatest.
func TestTheBudgetOfAnEffort(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"gemini-2.5-pro": `"thinking_budget":32000`, "gemini-2.5-flash": `"thinking_budget":24576`, "gemini-2.5-computer-use-preview-10-2025": `"thinking_budget":24576`,
	} {
		address, sent := keeps(t)
		_, err := opened(t, name, address).Generate(t.Context(), &provider.Request{
			Messages: []*modelv1.ChatMessage{chat.User("q")}, Config: &modelv1.GenerateConfig{ReasoningEffort: new("max")},
		})
		require.NoError(t, err, name)
		assert.Contains(t, *sent, want, name)
	}
}

// Names of models say whether they think.
func TestModelsThatThink(t *testing.T) {
	t.Parallel()
	for name, thinks := range map[string]bool{
		"gemini-2.0-flash": false, "gemini-2.5-flash": true, "gemini-2.5-flash-image": false, "gemini-2.5-flash-image-preview": false, "gemini-3-pro-image-preview": true,
		"gemini-flash-latest": true,
	} {
		assert.Equal(t, thinks, opened(t, name, "").Capabilities().Features.GetReasoning(), name)
	}
}

func TestWhatIsNotConfiguredOrNotBuiltIsSaid(t *testing.T) {
	t.Parallel()
	kind, closeIdle := google.Kind(google.Config{Accounts: map[string]provider.Account{"free": {KeyOptional: true}}})
	t.Cleanup(func() { _ = closeIdle() })
	const invalid = errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST
	for name, test := range map[string]struct {
		spec   provider.Spec
		reason errorsv1.ErrorReason
		says   string
	}{
		"no key":               {provider.Spec{Model: "gemini-2.5-flash", Account: "default"}, errorsv1.ErrorReason_ERROR_REASON_PROVIDER_NOT_CONFIGURED, "GEMINI_API_KEY"},
		"no project":           {provider.Spec{Model: "vertex/gemini-2.5-flash", Account: "default"}, errorsv1.ErrorReason_ERROR_REASON_PROVIDER_NOT_CONFIGURED, "GOOGLE_CLOUD_PROJECT"},
		"a project, no Vertex": {provider.Spec{Model: "gemini-2.5-flash", Account: "free", Args: `{"project":"p"}`}, invalid, "google/vertex"},
		"a login, no default":  {provider.Spec{Model: "gemini-2.5-flash", Account: "free", Args: `{"use_adc":true}`}, invalid, "account default"},
		"another service":      {provider.Spec{Model: "foo/gemini", Account: "free"}, invalid, "foo is no service"},
		"an unknown argument":  {provider.Spec{Model: "gemini-2.5-flash", Account: "free", Args: `{"steaming":true}`}, invalid, "steaming"},
		"a text for a switch":  {provider.Spec{Model: "gemini-2.5-flash", Account: "free", Args: `{"streaming":"maybe"}`}, invalid, "streaming must be true or false, not a JSON string"},
		"no version":           {provider.Spec{Model: "gemini-2.5-flash", Account: "free", Args: `{"api_version":"../v1"}`}, invalid, "api_version"},
		"an unknown category":  {provider.Spec{Model: "gemini-2.5-flash", Account: "free", Args: `{"safety_settings":{"spam":"none"}}`}, invalid, "spam"},
		"no threshold":         {provider.Spec{Model: "gemini-2.5-flash", Account: "free", Args: `{"safety_settings":{"harassment":"never"}}`}, invalid, "never"},
	} {
		_, err := kind.Open(test.spec)
		assert.Equal(t, test.reason, rpcerr.Reason(err), "%s: %v", name, err)
		assert.ErrorContains(t, err, test.says, name)
	}
	p, err := kind.Open(provider.Spec{Model: "gemini-2.5-flash", Account: "free", Args: `{"use_adc":false}`})
	require.NoError(t, err)
	spoken := &modelv1.GenerateConfig{Modalities: &modelv1.ModalityList{Values: []*modelv1.Modality{{Type: "audio"}}}}
	assert.True(t, rpcerr.Is(p.Check(spoken), errorsv1.ErrorReason_ERROR_REASON_CAPABILITY_UNSUPPORTED))
}

// answering is a server that answers with this status and body.
func answering(t *testing.T, status int, body string) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		assert.NotContains(t, r.URL.String(), "key-of-the-account")
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}))
	t.Cleanup(server.Close)
	return server.URL
}

func TestErrorsHaveTheirMeaning(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		status int
		body   string
		want   provider.Error
	}{
		"a delay in the body": {
			429, `{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","message":"slow","details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"34s"}]}}`,
			provider.Error{Class: provider.RateLimit, RetryAfter: 34 * time.Second},
		},
		"no quota": {429, `{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","message":"Quota exceeded, limit: 0"}}`, provider.Error{Class: provider.Final}},
		"no quota until tomorrow": {
			429, `{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","message":"You exceeded your current quota","details":[` +
				`{"@type":"type.googleapis.com/google.rpc.QuotaFailure","violations":[{"quotaId":"GenerateRequestsPerMinutePerProject"},{"quotaId":"GenerateRequestsPerDayPerProjectPerModel-FreeTier"}]},` +
				`{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"34s"}]}}`,
			provider.Error{Class: provider.Final, Message: "the daily quota is used up: You exceeded"},
		},
		"overload": {503, `{"error":{"code":503,"status":"UNAVAILABLE","message":"The model is overloaded."}}`, provider.Error{Class: provider.Transient}},
		"a wrong key": {
			400, `{"error":{"code":400,"status":"INVALID_ARGUMENT","message":"API key not valid: key-of-the-account","details":[{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"API_KEY_INVALID"}]}}`,
			provider.Error{Class: provider.Final, Auth: true},
		},
	} {
		_, err := opened(t, "gemini-2.5-flash", answering(t, tt.status, tt.body)).Generate(t.Context(), &provider.Request{Messages: []*modelv1.ChatMessage{chat.User("q")}})
		failure, ok := provider.As(err)
		require.True(t, ok, "%s: %v", name, err)
		assert.Equal(t, []any{tt.want.Class, tt.want.Auth, tt.want.RetryAfter, tt.status}, []any{failure.Class, failure.Auth, failure.RetryAfter, failure.Status}, name)
		assert.Contains(t, failure.Message, tt.want.Message, name)
		assert.NotContains(t, failure.Message+err.Error(), "key-of-the-account", name)
	}
}

// The key is in a header and the version in the path, wherever the address has it; watched answers are streamed.
func TestWhereRequestsGo(t *testing.T) {
	t.Parallel()
	var got *http.Request
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"candidates":[{"content":{"parts":[{"text":"fine"}]},"finishReason":"STOP"}]}`))
	}))
	t.Cleanup(server.Close)
	two := &modelv1.GenerateConfig{NumChoices: new(int32(2)), ExtraHeaders: &modelv1.HeaderMap{Values: map[string]string{"X-Own": "1"}}}
	for name, tt := range map[string]struct {
		address, model, args string
		config               *modelv1.GenerateConfig
		watched              bool
		want                 string
	}{
		"an answer":          {"", "gemini-2.5-flash", "", nil, false, "/v1beta/models/gemini-2.5-flash:generateContent"},
		"a watched answer":   {"", "gemini-2.5-flash", "", nil, true, "/v1beta/models/gemini-2.5-flash:streamGenerateContent?alt=sse"},
		"never a stream":     {"", "gemini-2.5-flash", `{"streaming":false}`, nil, true, "/v1beta/models/gemini-2.5-flash:generateContent"},
		"several choices":    {"", "gemini-2.5-flash", "", two, true, "/v1beta/models/gemini-2.5-flash:streamGenerateContent?alt=sse"},
		"always a stream":    {"", "gemini-2.5-flash", `{"streaming":true}`, nil, false, "/v1beta/models/gemini-2.5-flash:streamGenerateContent?alt=sse"},
		"a version":          {"/proxy", "gemini-2.5-flash", `{"api_version":"v1"}`, nil, false, "/proxy/v1/models/gemini-2.5-flash:generateContent"},
		"one in the address": {"/v1beta", "gemini-2.5-flash", "", nil, false, "/v1beta/models/gemini-2.5-flash:generateContent"},
		"a name with a mark": {"", "gemini-2.5-flash?x", "", nil, false, "/v1beta/models/gemini-2.5-flash%3Fx:generateContent"},
	} {
		kind := open(t, providertest.GoldenSetup{APIKey: "key-of-the-account", BaseURL: server.URL + tt.address})
		p, err := kind.Open(provider.Spec{Model: tt.model, Account: provider.DefaultAccount, Args: tt.args})
		require.NoError(t, err, name)
		r := &provider.Request{Messages: []*modelv1.ChatMessage{chat.User("q")}, Config: tt.config}
		if tt.watched {
			r.Progress = func() {}
		}
		_, err = p.Generate(t.Context(), r)
		require.NoError(t, err, name)
		assert.Equal(t, tt.want, got.URL.RequestURI(), name)
		assert.Equal(t, "key-of-the-account", got.Header.Get("X-Goog-Api-Key"), name)
		assert.Equal(t, tt.config != nil, got.Header.Get("X-Own") != "", name)
	}
}

// A call that the server could not read is asked for again, unless a text before it was streamed: that would be said
// twice.
func TestACallThatCannotBeReadIsAskedForAgain(t *testing.T) {
	t.Parallel()
	const (
		unread = `{"candidates":[{"finishReason":"MALFORMED_FUNCTION_CALL","finishMessage":"print(f"}],"usageMetadata":{"promptTokenCount":3,"totalTokenCount":3}}`
		read   = `{"candidates":[{"content":{"parts":[{"functionCall":{"name":"f"}}]},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":4,"totalTokenCount":4}}`
		after  = `{"candidates":[{"content":{"parts":[{"text":"Let me"}]},"finishReason":"MALFORMED_FUNCTION_CALL","finishMessage":"print(f"}]}`
		beside = `{"candidates":[{"content":{"parts":[{"functionCall":{"name":"f"}}]},"finishReason":"MALFORMED_FUNCTION_CALL","finishMessage":"print(f"}]}`
	)
	for name, tt := range map[string]struct {
		answers  []string
		streamed bool
		tries    int
		stop     modelv1.StopReason
		input    int64
	}{
		"read at once":          {[]string{read}, false, 1, modelv1.StopReason_STOP_REASON_TOOL_CALLS, 4},
		"read in the end":       {[]string{unread, unread, read}, false, 3, modelv1.StopReason_STOP_REASON_TOOL_CALLS, 10},
		"never read":            {[]string{unread, unread, unread, read}, false, 3, modelv1.StopReason_STOP_REASON_UNKNOWN, 9},
		"after a text":          {[]string{after, read}, false, 2, modelv1.StopReason_STOP_REASON_TOOL_CALLS, 4},
		"after a streamed text": {[]string{after, read}, true, 1, modelv1.StopReason_STOP_REASON_UNKNOWN, 0},
		"beside another call":   {[]string{beside, read}, false, 1, modelv1.StopReason_STOP_REASON_UNKNOWN, 0},
	} {
		var bodies []string
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			answer := tt.answers[len(bodies)]
			w.Header().Set("Content-Type", "application/json")
			if tt.streamed {
				w.Header().Set("Content-Type", "text/event-stream")
				answer = "data: " + answer + "\n\n"
			}
			_, _ = io.WriteString(w, answer)
			bodies = append(bodies, string(body))
		}))
		r := &provider.Request{
			Messages: []*modelv1.ChatMessage{chat.User("q")}, Tools: []*toolv1.ToolInfo{{Name: "f"}}, ToolChoice: chat.ModeChoice(toolv1.ToolChoiceMode_TOOL_CHOICE_MODE_AUTO),
		}
		if tt.streamed {
			r.Stream = func(*modelv1.GenerateDelta) {}
		}
		response, err := opened(t, "gemini-2.5-flash", server.URL).Generate(t.Context(), r)
		server.Close()
		require.NoError(t, err, name)
		assert.Equal(t, []any{tt.tries, tt.stop, tt.input}, []any{len(bodies), chat.StopReason(response.Output), response.Output.GetUsage().GetInputTokens()}, name)
		if name == "read in the end" {
			assert.Len(t, response.Billing.Passes, 3, "each try has the price of its own input")
		}
		assert.Contains(t, bodies[0], `"mode":"AUTO"`, name)
		for _, body := range bodies[1:] {
			assert.Contains(t, body, `{"text":"\nprint(f\n"}]}`, name)
			assert.Contains(t, body, `"mode":"ANY"`, name)
		}
	}
}

// Tries before one that fails have been paid for. What is recorded of the failure is the first request, and no answer
// to another.
func TestTheUsageOfEarlierTriesCountsWhenALaterOneFails(t *testing.T) {
	t.Parallel()
	const unread = `{"candidates":[{"finishReason":"MALFORMED_FUNCTION_CALL","finishMessage":"print(f"}],"usageMetadata":{"promptTokenCount":3,"totalTokenCount":3}}`
	for name, tt := range map[string]struct {
		status int
		body   string
		stops  bool
	}{
		"an error": {500, `{"error":{"message":"the second answer"}}`, false},
		"a stop":   {400, `{"error":{"message":"exceeds the maximum number of tokens"}}`, true},
	} {
		tries := 0
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			if tries++; tries > 1 {
				w.WriteHeader(tt.status)
				_, _ = io.WriteString(w, tt.body)
				return
			}
			_, _ = io.WriteString(w, unread)
		}))
		var counted int64
		response, err := opened(t, "gemini-2.5-flash", server.URL).Generate(t.Context(), &provider.Request{
			Messages: []*modelv1.ChatMessage{chat.User("q")}, Tools: []*toolv1.ToolInfo{{Name: "f"}}, Record: provider.RecordFailures,
			Unfinished: func(said *modelv1.ModelUsage, _ int64) { counted += said.GetInputTokens() },
		})
		server.Close()
		if tt.stops {
			require.NoError(t, err, name)
			assert.Equal(t, int64(3), response.Output.GetUsage().GetInputTokens(), name)
			continue
		}
		failure, ok := provider.As(err)
		require.True(t, ok, "%s: %v", name, err)
		assert.Equal(t, int64(3), counted, name)
		assert.NotContains(t, failure.Call.String(), "the second answer", name)
	}
}
