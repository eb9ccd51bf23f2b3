package modelgw_test

import (
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/config"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/modelgw"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/openaicompat"
)

// An effort that a model's API has another word for is said with that word, before the call and with its answer.
func TestAnEffortThatIsSentByAnotherWordIsSaid(t *testing.T) {
	t.Parallel()
	vendor := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		assert.NoError(t, err)
		assert.Contains(t, string(body), `"reasoning_effort":"low"`)
		_, _ = io.WriteString(w, `{"id":"1","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":"a"}}]}`)
	}))
	t.Cleanup(vendor.Close)
	g := start(t, func(c *modelConfig, _ *modelDeps) {
		key := config.NewSecret("k")
		c.Services = openaicompat.Services{"groq": {Account: openaicompat.Account{Account: provider.Account{APIKey: key, BaseURL: vendor.URL}}}}
		c.Anthropic.APIKey, c.Google.APIKey, c.Mistral.APIKey, c.Grok.APIKey, c.OpenAI.APIKey = key, key, key, key, key
	})
	asking := func(model, effort string) *modelv1.GenerateRequest {
		return &modelv1.GenerateRequest{Parent: project, Model: model, Config: &modelv1.GenerateConfig{ReasoningEffort: &effort}, ValidateOnly: true}
	}
	for _, test := range []struct{ model, asked, sent string }{
		{"groq/openai/gpt-oss-120b", "minimal", "low"},
		{"groq/openai/gpt-oss-120b", "low", ""},
		{"mistral/magistral-medium-latest", "low", "high"},
		{"mistral/magistral-medium-latest", "none", ""},
		{"google/gemini-3.1-pro-preview", "minimal", "low"},
		{"google/gemini-3.1-pro-preview", "max", "high"},
		{"google/gemini-3-flash-preview", "minimal", ""},
		{"google/gemini-2.5-flash", "max", ""}, // a number of tokens
		{"anthropic/claude-opus-4-6", "minimal", "low"},
		{"anthropic/claude-opus-4-6", "max", ""},
		{"anthropic/claude-sonnet-4-5", "minimal", ""}, // a number of tokens
		{"openai/gpt-5", "max", "xhigh"},
		{"openai/gpt-5.6", "max", ""},
		{"grok/grok-4.3", "max", "xhigh"},
		{"grok/grok-3-mini", "max", "high"},
	} {
		answer, err := g.models.Generate(t.Context(), asking(test.model, test.asked))
		require.NoError(t, err, test.model)
		assert.Empty(t, answer.GetUnsentOptions(), test.model)
		if test.sent == "" {
			assert.Empty(t, answer.GetChangedOptions(), test.model)
			assert.Equal(t, test.asked, answer.GetConfig().GetReasoningEffort(), test.model)
			continue
		}
		require.Len(t, answer.GetChangedOptions(), 1, "%s %s", test.model, test.asked)
		want := &modelv1.ChangedOption{Option: "reasoning_effort", Asked: test.asked, Sent: test.sent}
		assert.True(t, proto.Equal(want, answer.GetChangedOptions()[0]), "%s: %v", test.model, answer.GetChangedOptions())
		assert.Equal(t, []string{"reasoning_effort " + test.asked + " is sent to " + test.model + " as " + test.sent}, answer.GetWarnings())
		assert.Equal(t, test.sent, answer.GetConfig().GetReasoningEffort(), "the configuration is the one that is sent")
	}

	call := asking("groq/openai/gpt-oss-120b", "minimal")
	call.ValidateOnly, call.Messages = false, []*modelv1.ChatMessage{chat.User("q")}
	answer, err := g.models.Generate(t.Context(), call)
	require.NoError(t, err)
	assert.Equal(t, "low", answer.GetConfig().GetReasoningEffort())
	assert.Len(t, answer.GetChangedOptions(), 1)
	assert.Contains(t, answer.GetWarnings(), "reasoning_effort minimal is sent to groq/openai/gpt-oss-120b as low")
}

// What a call must fail with, and what of it is not sent, is said without one.
func TestACallIsCheckedWithoutOne(t *testing.T) {
	t.Parallel()
	vendor := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a provider was called") }))
	t.Cleanup(vendor.Close)
	g := start(t, func(c *modelConfig, _ *modelDeps) {
		c.Anthropic.APIKey, c.Anthropic.BaseURL = config.NewSecret("k"), vendor.URL
		c.OpenAI.APIKey = config.NewSecret("k")
		c.Prices = map[string]modelgw.Price{"openai/gpt-4o": {Rates: modelgw.Rates{Input: new(2.5), Output: new(10.0)}}}
		c.Budgets = map[string]modelgw.Budget{"projects/poor": {MaxCost: new(1.0)}}
	})
	check := func(parent, model, args string, c *modelv1.GenerateConfig) (*modelv1.GenerateResponse, error) {
		return g.models.Generate(t.Context(), &modelv1.GenerateRequest{Parent: parent, Model: model, ModelArgsJson: args, Config: c, ValidateOnly: true})
	}

	answer, err := check(project, "anthropic/claude-sonnet-4-5", "", &modelv1.GenerateConfig{Temperature: new(0.3), Seed: new(int64(4)), TopP: new(1.0)})
	require.NoError(t, err)
	assert.Equal(t, []string{"temperature", "seed"}, answer.GetUnsentOptions(), "1 is what top_p is anyway")
	assert.Equal(t, []string{
		"temperature is not sent to anthropic/claude-sonnet-4-5, which does not take it", "seed is not sent to anthropic/claude-sonnet-4-5, which does not take it",
	}, answer.GetWarnings())
	assert.Nil(t, answer.GetConfig().Temperature)
	assert.Nil(t, answer.GetConfig().TopP)
	assert.NotNil(t, answer.GetConfig().MaxTokens, "defaults are filled in")
	assert.InDelta(t, 3.0, answer.GetPrices().GetInput(), 0, "a built-in price")

	answer, err = check(project, "openai/gpt-4o", "", &modelv1.GenerateConfig{TopK: new(int32(3)), Temperature: new(0.3)})
	require.NoError(t, err)
	assert.Equal(t, []string{"top_k"}, answer.GetUnsentOptions())
	assert.InDelta(t, 2.5, answer.GetPrices().GetInput(), 0)

	answer, err = check(project, "anthropic/claude-sonnet-4-5", "", &modelv1.GenerateConfig{ExtraBodyJson: new(`{"own":7,"service_tier":"auto"}`)})
	require.NoError(t, err)
	assert.Equal(t, []string{"extra_body.own"}, answer.GetUnsentOptions())
	assert.Equal(t, []string{"extra_body.own is not sent to anthropic/claude-sonnet-4-5, which does not take it"}, answer.GetWarnings())
	assert.JSONEq(t, `{"service_tier":"auto"}`, answer.GetConfig().GetExtraBodyJson())

	answer, err = check(project, "openai/gpt-4o", "", &modelv1.GenerateConfig{
		CachePrompt: modelv1.CachePrompt_CACHE_PROMPT_ON, ExtraBodyJson: new(`{"metadata":{}}`),
	})
	require.NoError(t, err)
	assert.Equal(t, []string{"cache_prompt", "extra_body.metadata"}, answer.GetUnsentOptions())
	assert.Nil(t, answer.GetConfig().ExtraBodyJson, "nothing of it is left")

	for name, tt := range map[string]struct {
		parent, model, args string
		config              *modelv1.GenerateConfig
		reason              errorsv1.ErrorReason
		says                string // the field, and what is wrong with it
	}{
		"an argument": {project, "openai/gpt-4o", `{"respones": 1}`, nil, errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST, "respones"},
		"a temperature that is no number": {
			project, "mockllm/model", "", &modelv1.GenerateConfig{Temperature: new(math.NaN())}, errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST, "config.temperature: must be a finite number",
		},
		"a batch": {
			project, "mockllm/model", "", &modelv1.GenerateConfig{Batch: &modelv1.BatchSetting{Enabled: true}}, errorsv1.ErrorReason_ERROR_REASON_CAPABILITY_UNSUPPORTED, "config.batch",
		},
		"a batch by its size alone": {
			project, "mockllm/model", "", &modelv1.GenerateConfig{Batch: &modelv1.BatchSetting{Size: new(int32(5))}}, errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST, "config.batch",
		},
		"an expiry of the cache that is none": {
			project, "mockllm/model", "", &modelv1.GenerateConfig{Cache: &modelv1.CacheSetting{Enabled: true, Policy: &modelv1.CachePolicy{Expiry: "1w"}}},
			errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST, `config.cache: invalid expiry "1w"`,
		},
		"a limit of no connection": {
			project, "mockllm/model", "", &modelv1.GenerateConfig{AdaptiveConnections: &modelv1.AdaptiveConnections{Max: new(int32(0))}},
			errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST, "config: adaptive_connections: max must be at least 1",
		},
		"thinking that the model does not know": {
			project, "anthropic/claude-opus-4-8", "", &modelv1.GenerateConfig{ReasoningTokens: new(int64(2048))}, errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST, "reasoning_effort",
		},
		"a budget of dollars and no price": {
			"projects/poor", "mockllm/model", "", nil, errorsv1.ErrorReason_ERROR_REASON_PRICE_UNKNOWN, "the budget of projects/poor bounds dollars, and the price of mockllm/model is not known",
		},
	} {
		_, err := check(tt.parent, tt.model, tt.args, tt.config)
		assert.True(t, rpcerr.Is(err, tt.reason), "%s: %v", name, err)
		assert.ErrorContains(t, err, tt.says, name)
	}
	_, err = check(project, "openai/gpt-5", `{"responses_api": false}`, nil)
	require.NoError(t, err)
	_, err = check("projects/poor", "openai/gpt-4o", "", nil)
	require.NoError(t, err)
}

// Silence cuts an answer that is streamed alone: of another nothing comes until all of it does.
func TestSilenceCutsNoAnswerThatIsNotStreamed(t *testing.T) {
	t.Parallel()
	vendor := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		answer := `{"id":"c","object":"chat.completion","model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"fine"},"finish_reason":"stop"}]}`
		if strings.HasSuffix(r.URL.Path, "/messages") {
			answer = `{"id":"c","type":"message","role":"assistant","model":"m","content":[{"type":"text","text":"fine"}],"stop_reason":"end_turn","usage":{"input_tokens":1,"output_tokens":1}}`
		}
		_, _ = io.WriteString(w, answer)
	}))
	t.Cleanup(vendor.Close)
	g := start(t, func(c *modelConfig, _ *modelDeps) {
		c.Anthropic.APIKey, c.Anthropic.BaseURL = config.NewSecret("k"), vendor.URL
		c.OpenAI.APIKey, c.OpenAI.BaseURL = config.NewSecret("k"), vendor.URL
		c.OpenAIAPI.Services = map[string]provider.Account{"own": {KeyOptional: true, BaseURL: vendor.URL}}
	})
	request := func(model, args string) *modelv1.GenerateRequest {
		r := ask("", "q")
		r.Model, r.ModelArgsJson = model, args
		r.Config = &modelv1.GenerateConfig{StreamIdleTimeout: new(1e-6), MaxRetries: new(int32(0))} // shorter than any answer
		return r
	}
	for model, args := range map[string]string{
		"openai/gpt-4o": `{"streaming": false}`, "anthropic/claude-sonnet-4-5": `{"streaming": false}`, "openai-api/own/m": `{"stream": false}`,
	} {
		answer, err := g.models.Generate(t.Context(), request(model, args))
		require.NoError(t, err, model)
		assert.Equal(t, "fine", answer.GetOutput().GetCompletion(), model)
		assert.Equal(t, []string{"stream_idle_timeout"}, answer.GetUnsentOptions(), model)
		assert.Equal(t, []string{"stream_idle_timeout is not sent to " + model + ", whose answers are not streamed"}, answer.GetWarnings())
		for _, args := range []string{"", strings.Replace(args, "false", "true", 1)} {
			streamed := request(model, args)
			streamed.ValidateOnly = true
			answer, err := g.models.Generate(t.Context(), streamed)
			require.NoError(t, err, model)
			assert.Empty(t, answer.GetUnsentOptions(), model)
			streamed.ValidateOnly = false
			_, err = g.models.Generate(t.Context(), streamed)
			require.ErrorContains(t, err, "nothing came for 1µs", model)
		}
	}
}

// Arguments of OpenAI's Responses API that ask for something are said not to be sent with chat completions.
func TestArgumentsOfTheResponsesAPIAreSaidNotToBeSent(t *testing.T) {
	t.Parallel()
	g := start(t, func(c *modelConfig, _ *modelDeps) { c.OpenAI.APIKey = config.NewSecret("k") })
	for args, unsent := range map[string][]string{
		`{"responses_store": true, "responses_phase": true}`:                        {"responses_phase", "responses_store"},
		`{"responses_phase": true, "service_tier": "flex"}`:                         {"responses_phase"},
		`{"responses_store": false, "responses_phase": false, "background": false}`: nil,
	} {
		answer, err := g.models.Generate(t.Context(), &modelv1.GenerateRequest{
			Parent: project, Model: "openai/gpt-4o", ModelArgsJson: args, ValidateOnly: true,
			Config: &modelv1.GenerateConfig{Temperature: new(0.3)},
		})
		require.NoError(t, err)
		var options, says []string
		for _, name := range unsent {
			options = append(options, "model_args."+name)
			says = append(says, "model_args."+name+" is not sent to openai/gpt-4o, since chat completions do not take it")
		}
		assert.Equal(t, options, answer.GetUnsentOptions(), args)
		assert.Equal(t, says, answer.GetWarnings(), args)
		assert.NotNil(t, answer.GetConfig().Temperature)
	}
}

func TestABudgetOfDollarsRefusesAModelWithoutAPrice(t *testing.T) {
	t.Parallel()
	g := start(t, func(c *modelConfig, _ *modelDeps) {
		c.Prices = map[string]modelgw.Price{"mockllm/priced": {Rates: modelgw.Rates{Input: new(1.0), Output: new(2.0)}}}
	})
	_, err := g.models.Generate(t.Context(), ask("", "q"))
	require.NoError(t, err)
	_, err = g.limits.UpdateBudget(t.Context(), &modelv1.UpdateBudgetRequest{Budget: &modelv1.Budget{Name: project + "/budgets/project", MaxCost: new(1.0)}})
	require.NoError(t, err)
	_, err = g.models.Generate(t.Context(), ask("", "q"))
	require.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_PRICE_UNKNOWN), err)
	priced := ask("", "q")
	priced.Model = "mockllm/priced"
	_, err = g.models.Generate(t.Context(), priced)
	require.NoError(t, err)
}
