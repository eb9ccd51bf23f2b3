package mistral_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/config"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	effectv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/effect/v1"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/mistral"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/providertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t testing.TB, setup providertest.GoldenSetup) provider.Kind {
	t.Helper()
	var c mistral.Config
	if setup.Service == "azure" {
		setup.Load(t, &c, &c.Azure.APIKey, &c.Azure.BaseURL)
	} else {
		setup.Load(t, &c, &c.APIKey, &c.BaseURL)
	}
	return kindOf(t, c)
}

func kindOf(t testing.TB, c mistral.Config) provider.Kind {
	t.Helper()
	kind, closeIdle := mistral.Kind(c)
	t.Cleanup(func() { _ = closeIdle() })
	return kind
}

// The model argument that selects chat completions, and the one that selects the Conversations API.
const (
	byChat         = `{"conversation_api": false}`
	byConversation = `{"conversation_api": true}`
)

// opened opens a model whose API is at an address.
func opened(t testing.TB, address, model, args string) provider.Provider {
	t.Helper()
	p, err := open(t, providertest.GoldenSetup{APIKey: "key-of-the-account", BaseURL: address}).Open(provider.Spec{Model: model, Account: provider.DefaultAccount, Args: args})
	require.NoError(t, err)
	return p
}

func TestGoldenRequests(t *testing.T) {
	t.Parallel()
	providertest.Golden(t, "request", []string{"providers/request/mistral/*.json"}, open)
}

func TestGoldenResponses(t *testing.T) {
	t.Parallel()
	providertest.Golden(t, "response", []string{"providers/response/mistral/*.json"}, open)
}

func TestSuite(t *testing.T) {
	t.Parallel()
	for args, serve := range map[string]func(testing.TB, ...providertest.Answer) string{byChat: providertest.ChatServer, byConversation: providertest.ConversationsServer} {
		t.Run(args, func(t *testing.T) {
			t.Parallel()
			providertest.Run(t, providertest.Harness{New: func(t *testing.T, answers ...providertest.Answer) provider.Provider {
				return opened(t, serve(t, answers...), "mistral-large-latest", args)
			}})
		})
	}
}

// No option of a configuration is dropped silently.
func TestEveryOptionIsSentOrSaidNotToBe(t *testing.T) {
	t.Parallel()
	for _, args := range []string{byChat, byConversation} {
		t.Run(args, func(t *testing.T) {
			t.Parallel()
			providertest.Options(t, func(t *testing.T, root string) provider.Provider {
				return opened(t, root, "mistral-large-latest", args)
			})
		})
	}
}

// recorded is a server that keeps the last request and returns one answer.
type recorded struct {
	address, path, key string
	body               map[string]any
}

func serve(t testing.TB, status int, contentType, answer string) *recorded {
	t.Helper()
	r := &recorded{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		body, _ := io.ReadAll(request.Body)
		r.path, r.key, r.body = request.URL.Path, request.Header.Get("Authorization"), nil
		_ = json.Unmarshal(body, &r.body)
		w.Header().Set("Content-Type", contentType)
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, answer)
	}))
	t.Cleanup(server.Close)
	r.address = server.URL
	return r
}

const answerJSON = "application/json"

// The API is what the call's arguments ask for, else what the account does, else what the model takes; the address of
// an account may end with the version of the API.
func TestWhichAPIAModelHas(t *testing.T) {
	t.Parallel()
	s := serve(t, http.StatusUnauthorized, answerJSON, `{"detail":"Unauthorized"}`)
	const conversations, completions = "/v1/conversations", "/v1/chat/completions"
	kind := kindOf(t, mistral.Config{
		APIKey: config.NewSecret("own"), BaseURL: s.address + "/v1/",
		Azure: mistral.Azure{AzureAPIKey: config.NewSecret("cloud"), AzureBaseURL: s.address, ConversationAPI: new(false)},
		Accounts: map[string]mistral.Account{"team": {
			Account: provider.Account{APIKey: config.NewSecret("team"), BaseURL: s.address + "/proxy"}, ConversationAPI: new(false),
		}},
	})
	for name, tt := range map[string]struct {
		spec      provider.Spec
		path, key string
	}{
		"by default":           {provider.Spec{Model: "mistral-large-latest", Account: "default"}, conversations, "own"},
		"a model that hears":   {provider.Spec{Model: "Voxtral-small-latest", Account: "default"}, completions, "own"},
		"asked for":            {provider.Spec{Model: "voxtral-small-latest", Account: "default", Args: byConversation}, conversations, "own"},
		"not asked for":        {provider.Spec{Model: "mistral-large-latest", Account: "default", Args: byChat}, completions, "own"},
		"by the account":       {provider.Spec{Model: "mistral-large-latest", Account: "team"}, "/proxy" + completions, "team"},
		"before the account's": {provider.Spec{Model: "mistral-large-latest", Account: "team", Args: byConversation}, "/proxy" + conversations, "team"},
		"on Azure":             {provider.Spec{Model: "azure/mistral-large", Account: "default"}, completions, "cloud"},
	} {
		p, err := kind.Open(tt.spec)
		require.NoError(t, err, name)
		_, err = p.Generate(t.Context(), &provider.Request{Messages: []*modelv1.ChatMessage{chat.User("q")}, Config: &modelv1.GenerateConfig{}})
		failure, ok := provider.As(err)
		require.True(t, ok && failure.Auth, "%s: %v", name, err)
		assert.Equal(t, tt.path, s.path, name)
		assert.Equal(t, "Bearer "+tt.key, s.key, name)
		assert.NotContains(t, s.body["model"], "/", name)
		assert.NotContains(t, err.Error(), tt.key, name)
	}
}

func TestWhatIsNotConfiguredIsSaid(t *testing.T) {
	t.Parallel()
	kind := kindOf(t, mistral.Config{Accounts: map[string]mistral.Account{"free": {Account: provider.Account{KeyOptional: true}}}})
	keyless := kindOf(t, mistral.Config{Azure: mistral.Azure{BaseURL: "http://127.0.0.1:1"}})
	const invalid, unset = errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST, errorsv1.ErrorReason_ERROR_REASON_PROVIDER_NOT_CONFIGURED
	for name, tt := range map[string]struct {
		kind   provider.Kind
		spec   provider.Spec
		reason errorsv1.ErrorReason
		says   string
	}{
		"no key":                  {kind, provider.Spec{Model: "mistral-large-latest", Account: "default"}, unset, "MISTRAL_API_KEY"},
		"no address on Azure":     {kind, provider.Spec{Model: "azure/mistral-large", Account: "default"}, unset, "AZUREAI_MISTRAL_BASE_URL"},
		"no key on Azure":         {keyless, provider.Spec{Model: "azure/mistral-large", Account: "default"}, unset, "AZUREAI_MISTRAL_API_KEY"},
		"an account on Azure":     {kind, provider.Spec{Model: "azure/mistral-large", Account: "free"}, invalid, "names its service"},
		"another service":         {kind, provider.Spec{Model: "foo/mistral-large", Account: "free"}, invalid, "foo is no service"},
		"an unknown argument":     {kind, provider.Spec{Model: "mistral-large-latest", Account: "free", Args: `{"steaming":true}`}, invalid, "steaming"},
		"an unknown account":      {kind, provider.Spec{Model: "mistral-large-latest", Account: "nobody"}, invalid, "nobody"},
		"an address of its own":   {kind, provider.Spec{Model: "mistral-large-latest", Account: "free", BaseURL: "http://127.0.0.1:1"}, invalid, "allowed_base_urls"},
		"an address beside Azure": {keyless, provider.Spec{Model: "azure/mistral-large", Account: "default", BaseURL: "http://127.0.0.1:2"}, invalid, "allowed_base_urls"},
	} {
		_, err := tt.kind.Open(tt.spec)
		assert.Equal(t, tt.reason, rpcerr.Reason(err), "%s: %v", name, err)
		assert.ErrorContains(t, err, tt.says, name)
	}
}

// Mistral's chat completions are told to which conversation a request belongs; Azure and the Conversations API are not.
func TestTheKeyOfThePromptCache(t *testing.T) {
	t.Parallel()
	r := &provider.Request{
		Messages: []*modelv1.ChatMessage{chat.User("q")}, Config: &modelv1.GenerateConfig{}, Record: provider.RecordAll,
		Origin: provider.Origin{Attribution: &effectv1.Attribution{Run: "projects/p/runs/a"}},
	}
	sent := func(p provider.Provider) string {
		response, err := p.Generate(t.Context(), r)
		require.NoError(t, err)
		return response.Call.GetRequestJson()
	}
	completions := providertest.ChatServer(t, providertest.Answer{Text: "a"}, providertest.Answer{Text: "b"})
	assert.Regexp(t, `"prompt_cache_key":"[0-9a-f]{32}"`, sent(opened(t, completions, "mistral-large-latest", byChat)))
	conversations := providertest.ConversationsServer(t, providertest.Answer{Text: "c"})
	assert.NotContains(t, sent(opened(t, conversations, "mistral-large-latest", byConversation)), "prompt_cache_key")
	onAzure, err := kindOf(t, mistral.Config{Azure: mistral.Azure{APIKey: config.NewSecret("k"), BaseURL: completions}}).
		Open(provider.Spec{Model: "azure/mistral-large", Account: provider.DefaultAccount, Args: byChat})
	require.NoError(t, err)
	assert.NotContains(t, sent(onAzure), "prompt_cache_key")
}

// The delay that the API asks for survives, whichever the API.
func TestADelayThatTheAPIAsksFor(t *testing.T) {
	t.Parallel()
	for _, args := range []string{byChat, byConversation} {
		for status, class := range map[int]provider.Class{http.StatusTooManyRequests: provider.RateLimit, http.StatusServiceUnavailable: provider.Transient} {
			s := serve(t, status, answerJSON, `{"object":"error","message":"Slow down.","type":"rate_limited","param":null,"code":"1300"}`)
			_, err := opened(t, s.address, "mistral-large-latest", args).Generate(t.Context(), &provider.Request{Config: &modelv1.GenerateConfig{}})
			failure, ok := provider.As(err)
			require.True(t, ok, err)
			assert.Equal(t, class, failure.Class)
			assert.Equal(t, 7*time.Second, failure.RetryAfter)
			assert.Equal(t, "Slow down.", failure.Message)
		}
	}
}

// An error within a stream is retryable if its words do not say otherwise, since the request was accepted by then.
func TestAnErrorWithinAStream(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		args, events string
		class        provider.Class
	}{
		"of a conversation":             {byConversation, `{"type":"conversation.response.error","message":"It broke.","code":500}`, provider.Transient},
		"of a conversation, refused":    {byConversation, `{"type":"conversation.response.error","message":"Wrong.","code":400}`, provider.Final},
		"of a conversation, in a hurry": {byConversation, `{"type":"conversation.response.error","message":"Slow down.","code":429}`, provider.RateLimit},
		"of chat completions":           {byChat, `{"object":"error","message":"It broke.","type":"internal_server_error","code":"3700"}`, provider.Transient},
		"of chat completions, full":     {byChat, `{"object":"error","message":"No room.","type":"service_tier_capacity_exceeded","code":"3505"}`, provider.RateLimit},
		"in the form of OpenAI's":       {byChat, `{"error":{"message":"Wrong.","code":400}}`, provider.Final},
	} {
		s := serve(t, http.StatusOK, "text/event-stream", "data: "+tt.events+"\n\n")
		r := &provider.Request{Config: &modelv1.GenerateConfig{}, Stream: func(*modelv1.GenerateDelta) {}}
		_, err := opened(t, s.address, "mistral-large-latest", tt.args).Generate(t.Context(), r)
		failure, ok := provider.As(err)
		require.True(t, ok, "%s: %v", name, err)
		assert.Equal(t, tt.class, failure.Class, name)
	}
}

// The Conversations API does not say that an answer was cut: one with as many tokens as it may have was.
func TestAnAnswerThatWasCut(t *testing.T) {
	t.Parallel()
	s := serve(t, http.StatusOK, answerJSON, `{"object":"conversation.response","conversation_id":"conv_1",
		"outputs":[{"type":"message.output","content":"Deep","model":"served"}],
		"usage":{"prompt_tokens":1,"completion_tokens":5,"total_tokens":6}}`)
	search := []*toolv1.ToolInfo{{Name: "web_search", ParametersJson: `{"type":"object"}`, OptionsJson: `{"__internal_tool_type__":"web_search","mistral":{}}`}}
	for name, c := range map[string]struct {
		bound *int64
		tools []*toolv1.ToolInfo
		want  modelv1.StopReason
	}{
		"as many as it may have":     {new(int64(5)), nil, modelv1.StopReason_STOP_REASON_MAX_TOKENS},
		"fewer":                      {new(int64(6)), nil, modelv1.StopReason_STOP_REASON_STOP},
		"no bound":                   {nil, nil, modelv1.StopReason_STOP_REASON_STOP},
		"several passes of a search": {new(int64(5)), search, modelv1.StopReason_STOP_REASON_STOP},
	} {
		response, err := opened(t, s.address, "mistral-large-latest", byConversation).Generate(t.Context(), &provider.Request{
			Messages: []*modelv1.ChatMessage{chat.User("q")}, Tools: c.tools, Config: &modelv1.GenerateConfig{MaxTokens: c.bound},
		})
		require.NoError(t, err)
		assert.Equal(t, c.want, chat.StopReason(response.Output), name)
	}
}

// The server runs its own tools where their options allow it and the API has them; what they did is in the answer.
func TestToolsThatTheServerRuns(t *testing.T) {
	t.Parallel()
	s := serve(t, http.StatusOK, answerJSON, `{"object":"conversation.response","conversation_id":"conv_1","outputs":[
		{"type":"tool.execution","id":"t1","name":"web_search","arguments":"{\"query\":\"sea\"}","info":{"pages": 1}},
		{"type":"message.output","content":[{"type":"text","text":"Deep."},{"type":"tool_reference","tool":"web_search","title":"Sea","url":"https://x"}],"model":"served"}],
		"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}`)
	tools := []*toolv1.ToolInfo{
		{Name: "web_search", ParametersJson: `{"type":"object"}`, OptionsJson: `{"__internal_tool_type__":"web_search","mistral":{}}`},
		{Name: "code_execution", ParametersJson: `{"type":"object"}`, OptionsJson: `{"__internal_tool_type__":"code_execution","providers":{"mistral":{},"python":{}}}`},
		{Name: "add", ParametersJson: `{"type":"object"}`},
	}
	types := func() (all []string) {
		for _, tool := range s.body["tools"].([]any) {
			all = append(all, tool.(map[string]any)["type"].(string))
		}
		return all
	}
	response, err := opened(t, s.address, "mistral-large-latest", "").Generate(t.Context(), &provider.Request{
		Messages: []*modelv1.ChatMessage{chat.User("q")}, Tools: tools, ToolChoice: chat.ModeChoice(toolv1.ToolChoiceMode_TOOL_CHOICE_MODE_AUTO), Config: &modelv1.GenerateConfig{},
	})
	require.NoError(t, err)
	assert.Equal(t, []string{"web_search", "code_interpreter", "function"}, types())
	assert.Equal(t, "mistral-large-latest", response.Output.GetModel())
	parts := chat.Parts(chat.FirstMessage(response.Output).GetContent())
	require.Len(t, parts, 2)
	assert.Equal(t, contentv1.ToolUseType_TOOL_USE_TYPE_WEB_SEARCH, parts[0].GetToolUse().GetToolType())
	assert.JSONEq(t, `{"pages":1}`, parts[0].GetToolUse().GetResult())
	assert.Equal(t, "https://x", parts[1].GetText().GetCitations()[0].GetUrl())

	named := &provider.Request{Messages: []*modelv1.ChatMessage{chat.User("q")}, Tools: tools, ToolChoice: chat.FunctionChoice("add"), Config: &modelv1.GenerateConfig{}}
	_, err = opened(t, s.address, "mistral-large-latest", "").Generate(t.Context(), named)
	require.NoError(t, err)
	assert.Equal(t, []string{"function"}, types(), "the API cannot name a tool")
	assert.Equal(t, "required", s.body["completion_args"].(map[string]any)["tool_choice"])

	_, err = opened(t, s.address, "mistral-large-latest", byChat).Generate(t.Context(), named)
	require.Error(t, err, "the answer is no chat completion")
	assert.Equal(t, []string{"function", "function", "function"}, types())
}
