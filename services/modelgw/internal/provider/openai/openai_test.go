package openai_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/config"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/azureauth"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/openai"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/providertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// load loads the configuration of the account that a case uses.
func load(t testing.TB, setup providertest.GoldenSetup) openai.Config {
	t.Helper()
	var c openai.Config
	key, baseURL := &c.APIKey, &c.BaseURL
	switch setup.Service {
	case "azure":
		key, baseURL = &c.Azure.APIKey, &c.Azure.BaseURL
	case "bedrock":
		key, baseURL = &c.Bedrock.APIKey, &c.Bedrock.BaseURL
	}
	setup.Load(t, &c, key, baseURL)
	return c
}

func open(t testing.TB, setup providertest.GoldenSetup) provider.Kind {
	t.Helper()
	c := load(t, setup)
	kind, closeIdle := openai.Kind(c)
	if setup.Vendor != "" {
		kind, closeIdle = openai.KindAt(c, setup.Vendor)
	}
	t.Cleanup(func() { _ = closeIdle() })
	return kind
}

// openRecorded opens the account of a recorded case: the recording program lets the name of a model decide about its
// API at any address.
func openRecorded(t testing.TB, setup providertest.GoldenSetup) provider.Kind {
	t.Helper()
	if setup.Vendor != "" {
		return open(t, setup)
	}
	kind, closeIdle := openai.KindByName(load(t, setup))
	t.Cleanup(func() { _ = closeIdle() })
	return kind
}

func TestGoldenRequests(t *testing.T) {
	t.Parallel()
	providertest.Golden(t, "request", []string{"providers/request/openai/*.json"}, openRecorded)
}

func TestGoldenResponses(t *testing.T) {
	t.Parallel()
	providertest.Golden(t, "response", []string{"providers/response/openai/*.json"}, openRecorded)
}

// servers are servers of both APIs, by the model argument that selects it.
var servers = map[string]func(testing.TB, ...providertest.Answer) string{
	`{"responses_api": false}`: providertest.ChatServer, `{"responses_api": true}`: providertest.ResponsesServer,
}

// openAt opens a model at an address.
func openAt(t testing.TB, url, model, args string) provider.Provider {
	t.Helper()
	p, err := open(t, providertest.GoldenSetup{APIKey: "k", BaseURL: url}).Open(provider.Spec{Model: model, Account: provider.DefaultAccount, Args: args})
	require.NoError(t, err)
	return p
}

func TestSuite(t *testing.T) {
	t.Parallel()
	for args, serve := range servers {
		for _, model := range []string{"gpt-4o", "gpt-5"} {
			t.Run(model+args, func(t *testing.T) {
				t.Parallel()
				providertest.Run(t, providertest.Harness{New: func(t *testing.T, answers ...providertest.Answer) provider.Provider {
					return openAt(t, serve(t, answers...), model, args)
				}})
			})
		}
	}
}

// No option of a configuration is passed over without a word.
func TestEveryOptionIsSentOrSaidNotToBe(t *testing.T) {
	t.Parallel()
	for _, args := range []string{"", `{"responses_api": true}`, `{"responses_api": true, "responses_store": true, "responses_phase": true}`} {
		for _, name := range []string{"gpt-3.5-turbo", "gpt-4o", "gpt-5", "gpt-5-chat-latest", "codex-mini-latest", "gpt-5.4", "gpt-5.6", "o3", "heron-preview", "llama-3-70b"} {
			t.Run(name+args, func(t *testing.T) {
				t.Parallel()
				providertest.Options(t, func(t *testing.T, root string) provider.Provider { return openAt(t, root+"/v1", name, args) })
			})
		}
	}
}

// Outputs other than text and pictures are refused, beside pictures too.
func TestOtherOutputsAreRefused(t *testing.T) {
	t.Parallel()
	for _, args := range []string{"", byResponses} {
		p := openAt(t, "http://127.0.0.1:1/v1", "gpt-4o", args)
		for _, kinds := range [][]*modelv1.Modality{{{Type: "audio"}}, {{Type: "image"}, {Type: "audio"}}} {
			c := &modelv1.GenerateConfig{Modalities: &modelv1.ModalityList{Values: kinds}}
			r := &provider.Request{Messages: []*modelv1.ChatMessage{chat.User("q")}, Config: c}
			_, err := p.Generate(t.Context(), r)
			for _, err := range []error{p.Check(c), err} {
				assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_CAPABILITY_UNSUPPORTED), "%v", err)
				assert.ErrorContains(t, err, `"audio"`)
			}
		}
	}
}

// A model takes no options of sampling while it reasons.
func TestSamplingAndReasoning(t *testing.T) {
	t.Parallel()
	for model, want := range map[string][4]bool{ // without an effort, with none, with a low one, in the mode pro
		"gpt-4o": {true, true, true, true}, "gpt-5": {}, "gpt-5-mini": {}, "o4-mini": {}, "gpt-5.1": {true, true, false, false},
		"gpt-5.3-codex": {true, true, false, false}, "gpt-5.5": {false, true, false, false}, "gpt-6": {false, true, false, false},
		"heron-preview": {true, true, false, false}, "gpt-5-chat-latest": {true, true, true, true}, "codex-mini-latest": {},
	} {
		p := openAt(t, "http://127.0.0.1:1/v1", model, byResponses)
		for i, c := range []*modelv1.GenerateConfig{{}, {ReasoningEffort: new("none")}, {ReasoningEffort: new("low")}, {ReasoningMode: new("pro")}} {
			assert.Equal(t, !want[i], slices.Contains(provider.CapabilitiesOf(p, c).Ignored, "temperature"), "%s: %v", model, c)
		}
	}
}

func TestWhatIsNotConfiguredOrNotBuiltIsSaid(t *testing.T) {
	t.Parallel()
	var c openai.Config
	c.APIKey = config.NewSecret("k")
	c.AllowedBaseURLs = []string{"http://127.0.0.1:1/proxy"}
	c.Accounts = map[string]openai.Account{"empty": {}}
	c.Azure.APIKey = config.NewSecret("k")
	c.Azure.Accounts = map[string]azureauth.Account{"keyless": {Account: provider.Account{BaseURL: "http://127.0.0.1:1"}}}
	kind, closeIdle := openai.Kind(c)
	t.Cleanup(func() { _ = closeIdle() })
	for name, test := range map[string]struct {
		spec   provider.Spec
		reason errorsv1.ErrorReason
		says   string
	}{
		"no such account": {
			provider.Spec{Model: "gpt-4o", Account: "spare"}, errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST, "configured: default, empty",
		},
		"no key": {
			provider.Spec{Model: "gpt-4o", Account: "empty"}, errorsv1.ErrorReason_ERROR_REASON_PROVIDER_NOT_CONFIGURED, "OPENAI_API_KEY",
		},
		"an address that is not allowed": {
			provider.Spec{Model: "gpt-4o", Account: "default", BaseURL: "http://127.0.0.1:1/proxyy"},
			errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST, "allowed_base_urls",
		},
		"an address that climbs out": {
			provider.Spec{Model: "gpt-4o", Account: "default", BaseURL: "http://127.0.0.1:1/proxy/../admin"},
			errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST, "not allowed",
		},
		"an unknown argument": {
			provider.Spec{Model: "gpt-4o", Account: "default", Args: `{"respones_api": false}`},
			errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST, "respones_api",
		},
		"a region elsewhere": {
			provider.Spec{Model: "gpt-4o", Account: "default", Args: `{"aws_region": "us-east-1"}`}, errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST, "aws_region",
		},
		"a region that is none": {
			provider.Spec{Model: "bedrock/gpt-5", Account: "default", Args: `{"aws_region": "x.evil/"}`}, errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST, "region",
		},
		"Azure without a key": {
			provider.Spec{Model: "azure/gpt-4o", Account: "keyless"}, errorsv1.ErrorReason_ERROR_REASON_PROVIDER_NOT_CONFIGURED, "AZUREAI_OPENAI_API_KEY",
		},
		"Azure without an address": {
			provider.Spec{Model: "azure/gpt-4o", Account: "default"}, errorsv1.ErrorReason_ERROR_REASON_PROVIDER_NOT_CONFIGURED, "base_url",
		},
		"a version that is Azure's": {
			provider.Spec{Model: "gpt-4o", Account: "default", Args: `{"api_version": "v1"}`}, errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST, "api_version",
		},
	} {
		_, err := kind.Open(test.spec)
		assert.Equal(t, test.reason, rpcerr.Reason(err), "%s: %v", name, err)
		assert.ErrorContains(t, err, test.says, name)
	}
	_, err := kind.Open(provider.Spec{Model: "gpt-4o", Account: "default", BaseURL: "http://127.0.0.1:1/proxy/openai/"})
	require.NoError(t, err)
}

// By default the name of a model decides at OpenAI's own address alone; the configuration of an account may say, and
// the argument of a call has the last word.
func TestWhichAPIAnAccountsModelsAreAskedBy(t *testing.T) {
	t.Parallel()
	own := func(address string, responses *bool) openai.Account {
		return openai.Account{Account: provider.Account{APIKey: config.NewSecret("k"), BaseURL: address}, ResponsesAPI: responses}
	}
	kind, closeIdle := openai.Kind(openai.Config{APIKey: config.NewSecret("k"), Accounts: map[string]openai.Account{
		"vendor": own("https://api.openai.com/v1", nil), "europe": own("https://eu.api.openai.com/v1", nil), "chat": own("", new(false)),
		"vllm": own("http://127.0.0.1:8000/v1", nil), "proxy": own("https://api.openai.com.example.org/v1", nil), "said": own("http://127.0.0.1:8000/v1", new(true)),
	}})
	t.Cleanup(func() { _ = closeIdle() })
	for _, test := range []struct {
		model, account, args string
		responses            bool
	}{
		{"gpt-4o", "default", "", false},
		{"gpt-5", "default", "", true},
		{"o3", "vendor", "", true},
		{"gpt-5", "europe", "", true},
		{"gpt-5", "default", `{"responses_api":false}`, false},
		{"gpt-5-pro", "default", `{"responses_api":false}`, true},
		{"o3-deep-research", "chat", "", true},
		{"gpt-5-pro", "default", `{"responses_api":false,"background":false}`, false},
		{"gpt-5", "default", `{"responses_api":false,"background":true}`, true},
		{"gpt-5-pro", "vllm", `{"responses_api":false}`, false},
		{"gpt-5", "chat", "", false},
		{"gpt-5", "chat", `{"responses_api":true}`, true},
		{"llama-3-70b", "vllm", "", false},
		{"gpt-5", "vllm", "", false},
		{"gpt-5", "proxy", "", false},
		{"llama-3-70b", "vllm", `{"responses_api":true}`, true},
		{"llama-3-70b", "said", "", true},
	} {
		p, err := kind.Open(provider.Spec{Model: test.model, Account: test.account, Args: test.args})
		require.NoError(t, err)
		assert.Equal(t, test.responses, slices.Contains(p.Capabilities().Ignored, "stop_seqs"), "%+v: only chat completions take stop sequences", test)
		require.NoError(t, p.Check(&modelv1.GenerateConfig{}))
		images := &modelv1.GenerateConfig{Modalities: &modelv1.ModalityList{Values: []*modelv1.Modality{{Type: "image"}}}}
		assert.Contains(t, provider.CapabilitiesOf(p, images).Ignored, "stop_seqs", "%+v: images are drawn by the Responses API alone", test)
		several := provider.CapabilitiesOf(p, &modelv1.GenerateConfig{NumChoices: new(int32(2))})
		byName := test.args == "" && test.account != "said" && test.model != "o3-deep-research"
		assert.Equal(t, test.responses && !byName, slices.Contains(several.Ignored, "num_choices"), "%+v: several choices are of chat completions alone", test)
	}
}

// Models that OpenAI answers by the Responses API alone are never asked by chat completions: a client's request for one
// is converted.
func TestWhichModelsAreNotRelayedToChatCompletions(t *testing.T) {
	t.Parallel()
	kind, closeIdle := openai.Kind(openai.Config{APIKey: config.NewSecret("k")})
	t.Cleanup(func() { _ = closeIdle() })
	for model, both := range map[string]bool{
		"gpt-4o": true, "gpt-5": true, "o3": true, "gpt-5.1": true, "gpt-5-mini": true,
		"gpt-5-codex": false, "gpt-5.1-codex-max": false, "codex-mini-latest": false, "gpt-5-pro": false, "o3-pro-2025-06-10": false, "o4-mini-deep-research": false,
	} {
		p, err := kind.Open(provider.Spec{Model: model, Account: "default"})
		require.NoError(t, err)
		var dialects []string
		for _, upstream := range p.Capabilities().Upstreams {
			dialects = append(dialects, upstream.Dialect)
		}
		want := []string{"openai-responses"}
		if both {
			want = []string{"openai-chat", "openai-responses"}
		}
		assert.Equal(t, want, dialects, model)
	}
}

// Every option that the format knows is in the request. A model without a known name is one of OpenAI's newest only
// where the server may be OpenAI's.
func TestOptionsReachTheRequest(t *testing.T) {
	t.Parallel()
	const options = `{"max_tokens": 100, "top_p": 0.9, "temperature": 0.5, "stop_seqs": ["END"], "frequency_penalty": 0.1,
		"presence_penalty": 0.2, "logit_bias": {"42": 10.0}, "seed": 7, "num_choices": 2, "logprobs": true, "top_logprobs": 2,
		"parallel_tool_calls": false, "reasoning_effort": "medium", "extra_body": {"x": 1},
		"response_schema": {"name": "s", "json_schema": {"type": "object"}, "strict": true}}`
	config, err := chat.ParseConfig([]byte(options))
	require.NoError(t, err)
	said := func(role string) string {
		return `"messages": [{"role": "` + role + `", "content": "Be brief."}, {"role": "user", "content": "q"}]`
	}
	const both = `"tool_choice": "auto",
		"tools": [{"type": "function", "function": {"name": "f", "description": "F.", "parameters": {"type": "object"}}}],
		"top_p": 0.9, "frequency_penalty": 0.1, "presence_penalty": 0.2, "stop": ["END"], "seed": 7, "n": 2, "logit_bias": {"42": 10},
		"logprobs": true, "top_logprobs": 2, "x": 1,
		"response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": {"type": "object"}, "strict": true}}`
	for model, own := range map[string]string{
		"gpt-4o": said("system") + `, "max_tokens": 100, "temperature": 0.5, "parallel_tool_calls": false`,
		"o3":     said("developer") + `, "max_completion_tokens": 100, "reasoning_effort": "medium"`,
		"llama-3.3": said("system") + `, "max_tokens": 100, "temperature": 0.5, "parallel_tool_calls": false,
			"reasoning_effort": "medium"`,
	} {
		setup := providertest.GoldenSetup{APIKey: "k", BaseURL: providertest.ChatServer(t, providertest.Answer{Text: "fine"})}
		spec := provider.Spec{Model: model, Account: provider.DefaultAccount, Args: `{"responses_api":false}`}
		p, err := open(t, setup).Open(spec)
		require.NoError(t, err)
		response, err := p.Generate(t.Context(), &provider.Request{
			Messages: []*modelv1.ChatMessage{chat.System("Be brief."), chat.User("q")},
			Config:   config, Record: provider.RecordAll,
			Tools: []*toolv1.ToolInfo{{Name: "f", Description: "F.", ParametersJson: `{"type":"object"}`}},
		})
		require.NoError(t, err)
		assert.JSONEq(t, fmt.Sprintf(`{"model": %q, %s, %s}`, model, both, own), response.Call.GetRequestJson())
		assert.Equal(t, model == "o3", slices.Contains(provider.CapabilitiesOf(p, config).Ignored, "temperature"), model)
	}
}

// Marks of one's own are sent to the vendor's newer models, with one at the end of the instructions; not to another
// address or model, and not where one of them has no place.
func TestCacheMarks(t *testing.T) {
	t.Parallel()
	text := func(role modelv1.Role, marked bool) *modelv1.ChatMessage {
		part := chat.TextPart("shared")
		if marked {
			part.GetText().CacheBreakpoint = new(true)
		}
		return &modelv1.ChatMessage{Role: role, Content: chat.ListContent(part, chat.TextPart("own"))}
	}
	const user, assistant, system = modelv1.Role_ROLE_USER, modelv1.Role_ROLE_ASSISTANT, modelv1.Role_ROLE_SYSTEM
	brief := &modelv1.ChatMessage{Role: system, Content: chat.TextContent("Be brief.")}
	off := &modelv1.GenerateConfig{CachePrompt: modelv1.CachePrompt_CACHE_PROMPT_OFF}
	const mark = `"prompt_cache_breakpoint":{"mode":"explicit"}`
	for name, test := range map[string]struct {
		model    string
		vendor   bool
		config   *modelv1.GenerateConfig
		messages []*modelv1.ChatMessage
		want     string // the messages; empty where nothing is to be marked
	}{
		"a question": {
			"gpt-5.6", true, nil,
			[]*modelv1.ChatMessage{brief, text(user, true)},
			`[{"role":"developer","content":[{"type":"text","text":"Be brief.",` + mark + `}]},
			  {"role":"user","content":[{"type":"text","text":"shared",` + mark + `},{"type":"text","text":"own"}]}]`,
		},
		"a later model, instructions alone": {
			"gpt-6-mini", true, nil,
			[]*modelv1.ChatMessage{brief, text(system, true), chat.User("q")},
			`[{"role":"developer","content":"Be brief."},
			  {"role":"developer","content":[{"type":"text","text":"shared",` + mark + `},{"type":"text","text":"own",` + mark + `}]},
			  {"role":"user","content":"q"}]`,
		},
		"no mark":          {"gpt-5.6", true, nil, []*modelv1.ChatMessage{brief, text(user, false)}, ""},
		"an earlier model": {"gpt-5.5", true, nil, []*modelv1.ChatMessage{brief, text(user, true)}, ""},
		"another address":  {"gpt-5.6", false, nil, []*modelv1.ChatMessage{brief, text(user, true)}, ""},
		"caching is off":   {"gpt-5.6", true, off, []*modelv1.ChatMessage{brief, text(user, true)}, ""},
		"one in an answer": {"gpt-5.6", true, nil, []*modelv1.ChatMessage{text(user, true), text(assistant, true), chat.User("q")}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := providertest.ChatServer(t, providertest.Answer{Text: "fine"})
			setup := providertest.GoldenSetup{APIKey: "k", BaseURL: url}
			if test.vendor {
				setup = providertest.GoldenSetup{APIKey: "k", Vendor: url}
			}
			p, err := open(t, setup).Open(provider.Spec{Model: test.model, Account: provider.DefaultAccount, Args: `{"responses_api":false}`})
			require.NoError(t, err)
			config := test.config
			if config == nil {
				config = &modelv1.GenerateConfig{}
			}
			response, err := p.Generate(t.Context(), &provider.Request{Messages: test.messages, Config: config, Record: provider.RecordAll})
			require.NoError(t, err)
			request := response.Call.GetRequestJson()
			if test.want == "" {
				assert.NotContains(t, request, "prompt_cache")
				return
			}
			var sent struct {
				Messages json.RawMessage `json:"messages"`
				Options  json.RawMessage `json:"prompt_cache_options"`
			}
			require.NoError(t, json.Unmarshal([]byte(request), &sent))
			assert.JSONEq(t, test.want, string(sent.Messages))
			assert.JSONEq(t, `{"mode":"explicit"}`, string(sent.Options))
		})
	}
}

func TestTheKeyDoesNotFollowARedirect(t *testing.T) {
	t.Parallel()
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the redirect was followed") }))
	t.Cleanup(elsewhere.Close)
	server := httptest.NewServer(http.RedirectHandler(elsewhere.URL, http.StatusTemporaryRedirect))
	t.Cleanup(server.Close)
	kind := open(t, providertest.GoldenSetup{APIKey: "k", BaseURL: server.URL})
	p, err := kind.Open(provider.Spec{Model: "gpt-4o", Account: provider.DefaultAccount})
	require.NoError(t, err)
	_, err = p.Generate(t.Context(), &provider.Request{Config: &modelv1.GenerateConfig{}})
	failure, ok := provider.As(err)
	require.True(t, ok, err)
	assert.Equal(t, http.StatusBadGateway, failure.Status)
	assert.Equal(t, provider.Final, failure.Class)
}

func TestARecordLeavesMediaOut(t *testing.T) {
	t.Parallel()
	kind := open(t, providertest.GoldenSetup{APIKey: "secret-key", BaseURL: providertest.ChatServer(t, providertest.Answer{Text: "a cat"})})
	p, err := kind.Open(provider.Spec{Model: "gpt-4o", Account: provider.DefaultAccount})
	require.NoError(t, err)
	picture := "data:image/png;base64," + strings.Repeat("AAAA", 1000)
	m := chat.User("")
	m.Content = chat.ListContent(chat.TextPart("what is it?"), chat.ImagePart(picture))
	response, err := p.Generate(t.Context(), &provider.Request{Messages: []*modelv1.ChatMessage{m}, Config: &modelv1.GenerateConfig{}, Record: provider.RecordAll})
	require.NoError(t, err)
	assert.NotContains(t, response.Call.GetRequestJson(), "AAAA")
	assert.NotContains(t, response.Call.GetRequestJson(), "secret-key")
	assert.Contains(t, response.Call.GetRequestJson(), "what is it?")
}
