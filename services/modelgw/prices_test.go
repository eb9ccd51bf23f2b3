package modelgw_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	messages "github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/config"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/modelgw"
)

// What is left out of a price is refused or means the price of input: it is never free.
func TestAPriceLeavesNothingFree(t *testing.T) {
	t.Parallel()
	priced := func(document string) (modelgw.Config, error) {
		var cfg modelgw.Config
		cfg.SetDefaults()
		require.NoError(t, config.Decode(&cfg, []byte(document)))
		return cfg, cfg.Validate()
	}
	for document, fault := range map[string]string{
		`prices: {gpt-4o: {input: 1, output: 1}}`:                                   `prices: model: "gpt-4o" is not of the form <provider>/<model>`,
		`prices: {opnai/gpt-4o: {input: 1, output: 1}}`:                             `prices: unknown provider "opnai"`,
		`models: {opnai/gpt-4o: {context: 1}}`:                                      `models: unknown provider "opnai"`,
		`prices: {mockllm/model: {output: 1}}`:                                      "prices.mockllm/model.input: is missing; give 0 for what costs nothing",
		`prices: {mockllm/model: {input: 1}}`:                                       "prices.mockllm/model.output: is missing",
		`prices: {mockllm/model: {input: -1, output: 1}}`:                           "prices.mockllm/model.input: must be a number that is not negative",
		`prices: {mockllm/model: {input: 1, output: .inf}}`:                         "prices.mockllm/model.output: must be a number",
		`prices: {mockllm/model: {input: 1, output: 1, modes: {flex: {input: 1}}}}`: "prices.mockllm/model.modes.flex.output: is missing",
		`prices: {mockllm/model: {input: 1, output: 1, input_cache_read: .nan}}`:    "prices.mockllm/model.input_cache_read: must be a number",
	} {
		_, err := priced(document)
		require.ErrorContains(t, err, fault, document)
	}

	cfg, err := priced(`prices: {mockllm/model: {input: 2, output: 0, input_cache_read: 0.5}}`)
	require.NoError(t, err)
	g := start(t, func(with *modelConfig, _ *modelDeps) { with.Prices = cfg.Prices })
	answer, err := g.models.Generate(t.Context(), &modelv1.GenerateRequest{Parent: project, Model: "mockllm/model", ValidateOnly: true})
	require.NoError(t, err)
	prices := answer.GetPrices()
	assert.Equal(t, []float64{2, 0, 2, 0.5}, []float64{
		prices.GetInput(), prices.GetOutput(), prices.GetInputCacheWrite(), prices.GetInputCacheRead(),
	})
}

// Dollars are bounded without any configuration of prices, if the data has the model's; the configuration's come first.
func TestBuiltInPricesAreReplacedByTheConfiguration(t *testing.T) {
	t.Parallel()
	g := start(t, func(c *modelConfig, _ *modelDeps) {
		c.OpenAI.APIKey = config.NewSecret("k")
		c.Prices = map[string]modelgw.Price{"openai/gpt-5.4": {Rates: modelgw.Rates{Input: new(1.0), Output: new(2.0)}}, "openai/mine": {Rates: modelgw.Rates{Input: new(1.0), Output: new(2.0)}}}
		c.Budgets = map[string]modelgw.Budget{"projects/default": {MaxCost: new(1.0)}}
	})
	priced := func(model string) (*modelv1.Prices, error) {
		answer, err := g.models.Generate(t.Context(), &modelv1.GenerateRequest{Parent: project, Model: model, ValidateOnly: true})
		return answer.GetPrices(), err
	}
	built, err := priced("openai/gpt-5.5")
	require.NoError(t, err)
	assert.Positive(t, built.GetOutput())
	assert.Equal(t, int64(272_000), built.GetLongInputTokens())
	given, err := priced("openai/gpt-5.4")
	require.NoError(t, err)
	assert.InDelta(t, 2.0, given.GetOutput(), 0)
	assert.Nil(t, given.GetLongInput(), "nothing of the built-in prices is left")
	_, err = priced("openai/mine")
	require.NoError(t, err)
	_, err = priced("openai/gpt-5.5-2099-01-01")
	assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_PRICE_UNKNOWN), "a snapshot that is not known may cost anything: %v", err)

	for model, source := range map[string]string{"gpt-5.4": "configuration", "gpt-5.5": "LiteLLM", "gpt-5.5-2099-01-01": ""} {
		m, err := g.models.GetModel(t.Context(), &modelv1.GetModelRequest{Name: "providers/openai/models/" + model})
		require.NoError(t, err)
		assert.Contains(t, m.GetPricesSource(), source)
		assert.Equal(t, source == "", m.GetPrices() == nil, model)
	}
}

// costs checks what an answer of a million tokens has cost, and whether that is only a part.
func (w *web) costs(t *testing.T, cost float64, partial bool) {
	t.Helper()
	require.Eventually(t, func() bool { return w.spent(t) == 1_000_000 }, waitLimit, tick)
	budgets, err := w.limits.ListBudgets(t.Context(), &modelv1.ListBudgetsRequest{Parent: project})
	require.NoError(t, err)
	require.Len(t, budgets.GetBudgets(), 1)
	assert.InDelta(t, cost, budgets.GetBudgets()[0].GetSpentCost(), 1e-9)
	assert.Equal(t, partial, budgets.GetBudgets()[0].GetCostPartial())
}

// What an answer costs goes by the mode that it names, in each lane and format. A mode without a price is refused
// before anything is sent where dollars are bounded, and else the sum says that it is partial.
func TestAModeOfTheServerHasItsOwnPrice(t *testing.T) {
	t.Parallel()
	const chat = `{"id":"1","choices":[{"index":0,"message":{"role":"assistant","content":"x"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1000000,"completion_tokens":0,"total_tokens":1000000}%s}`
	const stream = `data: {"id":"1","choices":[{"index":0,"delta":{"content":"x"},"finish_reason":"stop"}]%s}` + "\n\n" +
		`data: {"id":"1","choices":[],"usage":{"prompt_tokens":1000000,"completion_tokens":0,"total_tokens":1000000}%[1]s}` + "\n\ndata: [DONE]\n\n"
	const response = `{"id":"1","status":"completed","output":[{"type":"message","role":"assistant","content":[{"type":"output_text","text":"x"}]}],"usage":{"input_tokens":1000000,"output_tokens":0,"total_tokens":1000000}%s}`
	question := `"model":"openai/m","messages":[{"role":"user","content":"q"}]`
	type lane struct {
		kind, answer string
		ask          func(t *testing.T, w *web, tier string) (status int)
	}
	relayed := func(path, request string) func(*testing.T, *web, string) int {
		return func(t *testing.T, w *web, tier string) int {
			t.Helper()
			answer := w.post(t, path, `{`+request+tier+`}`)
			read(t, answer)
			return answer.StatusCode
		}
	}
	canonical := func(args string) func(*testing.T, *web, string) int {
		return func(t *testing.T, w *web, tier string) int {
			t.Helper()
			_, err := w.models.Generate(t.Context(), &modelv1.GenerateRequest{
				Parent: project, Model: "openai/m", Messages: []*modelv1.ChatMessage{messages.User("q")},
				ModelArgsJson: `{` + strings.TrimPrefix(args+tier, ",") + `}`,
			})
			if rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_PRICE_UNKNOWN) {
				return http.StatusBadRequest
			}
			require.NoError(t, err)
			return http.StatusOK
		}
	}
	for name, l := range map[string]lane{
		"relayed":           {"application/json", chat, relayed("/v1/chat/completions", question)},
		"relayed stream":    {"text/event-stream", stream, relayed("/v1/chat/completions", question+`,"stream":true,"stream_options":{"include_usage":true}`)},
		"relayed responses": {"application/json", response, relayed("/v1/responses", `"model":"openai/m","input":"q"`)},
		"chat":              {"application/json", chat, canonical(`"responses_api":false`)},
		"stream":            {"text/event-stream", stream, canonical(`"responses_api":false,"streaming":true`)},
		"responses":         {"application/json", response, canonical(`"responses_api":true`)},
	} {
		for mode, tt := range map[string]struct {
			asked, answered string
			bounded         bool
			cost            float64
			partial         bool
			refused         bool
		}{
			"plain":                           {cost: 4},
			"flex":                            {asked: "flex", answered: "flex", bounded: true, cost: 2},
			"flex that the server did not do": {asked: "flex", answered: "default", bounded: true, cost: 4},
			"flex that the server chose":      {asked: "auto", answered: "flex", bounded: true, cost: 2},
			"an unknown mode":                 {asked: "scale", answered: "scale", partial: true},
			"an unknown mode within a bound":  {asked: "scale", bounded: true, refused: true},
			"an unknown mode, not asked for":  {answered: "scale", bounded: true, partial: true},
		} {
			t.Run(name+"/"+mode, func(t *testing.T) {
				t.Parallel()
				tier := func(word string) string {
					if word == "" {
						return ""
					}
					return `,"service_tier":"` + word + `"`
				}
				v := vendorWith(t, says(http.StatusOK, l.kind, fmt.Sprintf(l.answer, tier(tt.answered))))
				w := serveWeb(t, v, func(c *modelgw.Config, _ *modelgw.Deps) {
					c.Prices = map[string]modelgw.Price{"openai/m": {Rates: modelgw.Rates{Input: new(4.0), Output: new(8.0)}, Modes: map[string]modelgw.Rates{"flex": {Input: new(2.0), Output: new(4.0)}}}}
					c.OpenAI.ResponsesAPI = nil
					if strings.Contains(name, "responses") {
						throughResponses(c, nil)
					}
					if tt.bounded {
						c.Budgets = map[string]modelgw.Budget{project: {MaxCost: new(100.0)}}
					}
				})
				status := l.ask(t, w, tier(tt.asked))
				if tt.refused {
					assert.Equal(t, http.StatusBadRequest, status)
					assert.Empty(t, v.asked, "nothing was sent")
					return
				}
				assert.Equal(t, http.StatusOK, status)
				w.costs(t, tt.cost, tt.partial)
			})
		}
	}
}

func TestAModelShowsWhatIsKnownOfIt(t *testing.T) {
	t.Parallel()
	g := start(t)
	model := func(name string) *modelv1.Model {
		m, err := g.models.GetModel(t.Context(), &modelv1.GetModelRequest{Name: name})
		require.NoError(t, err)
		return m
	}
	known := model("providers/openai/models/gpt-5")
	assert.Equal(t, []string{"openai/gpt-5", "GPT-5", "OpenAI", "2025-08-07", "2024-09-30", "medium"}, []string{
		known.GetCanonicalName(), known.GetDisplayName(), known.GetOrganization(), known.GetReleaseDate(), known.GetKnowledgeCutoffDate(), known.GetDefaultReasoningEffort(),
	})
	assert.Equal(t, []int64{400_000, 272_000, 128_000}, []int64{known.GetContextTokens(), known.GetInputTokens(), known.GetOutputTokens()})
	assert.True(t, known.GetReasoning())
	assert.Contains(t, known.GetFactsSource(), "as of 20")

	unknown := model("providers/openai/models/nosuch")
	assert.Equal(t, "openai/nosuch", unknown.GetCanonicalName())
	assert.Nil(t, unknown.ContextTokens)
	assert.Nil(t, unknown.Reasoning)
	assert.Empty(t, unknown.GetFactsSource())
	assert.Empty(t, unknown.GetPricesSource())
}

// Anthropic's speed and region are one mode, and what a request asks for is priced before anything is sent.
func TestASpeedInARegionHasItsOwnPrice(t *testing.T) {
	t.Parallel()
	const answer = `{"id":"m","type":"message","role":"assistant","content":[{"type":"text","text":"x"}],"stop_reason":"end_turn","usage":{"input_tokens":1000000,"output_tokens":0%s}}`
	relayed := func(t *testing.T, w *web, model, members string) int {
		t.Helper()
		answer := w.post(t, messagesPath, `{"model":"`+model+`","max_tokens":5,"messages":[{"role":"user","content":"q"}]`+members+`}`)
		read(t, answer)
		return answer.StatusCode
	}
	canonical := func(t *testing.T, w *web, model, members string) int {
		t.Helper()
		_, err := w.models.Generate(t.Context(), &modelv1.GenerateRequest{
			Parent: project, Model: model, Messages: []*modelv1.ChatMessage{messages.User("q")},
			ModelArgsJson: `{"streaming":false,"extra_body":{` + strings.TrimPrefix(members, ",") + `}}`,
		})
		if rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_PRICE_UNKNOWN) {
			return http.StatusBadRequest
		}
		require.NoError(t, err)
		return http.StatusOK
	}
	for lane, ask := range map[string]func(*testing.T, *web, string, string) int{"relayed": relayed, "canonical": canonical} {
		for name, tt := range map[string]struct {
			model, asked, answered string
			cost                   float64
			refused, partial       bool
		}{
			"plain":                         {"anthropic/claude-opus-5", ``, `,"speed":"standard","inference_geo":"global"`, 5, false, false},
			"fast":                          {"anthropic/claude-opus-5", `,"speed":"fast"`, `,"speed":"fast"`, 10, false, false},
			"in a region":                   {"anthropic/claude-opus-5", `,"inference_geo":"us"`, `,"inference_geo":"us"`, 5.5, false, false},
			"fast in a region":              {"anthropic/claude-opus-5", `,"speed":"fast","inference_geo":"us"`, `,"speed":"fast","inference_geo":"us"`, 11, false, false},
			"fast where nobody knows it":    {"anthropic/claude-fable-5", `,"inference_geo":"us","speed":"fast"`, ``, 0, true, false},
			"a region that nobody knows":    {"anthropic/claude-opus-5", `,"inference_geo":"mars"`, ``, 0, true, false},
			"a tier that is paid otherwise": {"anthropic/claude-opus-5", ``, `,"service_tier":"priority"`, 0, false, true},
		} {
			t.Run(lane+"/"+name, func(t *testing.T) {
				t.Parallel()
				v := vendorWith(t, says(http.StatusOK, "application/json", fmt.Sprintf(answer, tt.answered)))
				w := serveMessages(t, v, func(c *modelgw.Config, _ *modelgw.Deps) {
					c.Budgets = map[string]modelgw.Budget{project: {MaxCost: new(100.0)}}
				})
				status := ask(t, w, tt.model, tt.asked)
				if tt.refused {
					assert.Equal(t, http.StatusBadRequest, status)
					assert.Empty(t, v.asked, "nothing was sent")
					return
				}
				assert.Equal(t, http.StatusOK, status)
				w.costs(t, tt.cost, tt.partial)
			})
		}
	}
}
