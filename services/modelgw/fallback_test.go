package modelgw_test

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/config"
	effectv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/effect/v1"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/modelgw"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

// fallsBack sets fallbacks of gpt-4o: one that is not configured, then a server that speaks the same format, or
// a scripted model.
func fallsBack(to ...string) setup {
	return func(c *modelgw.Config, _ *modelgw.Deps) {
		c.Fallbacks = map[string][]string{"openai/gpt-4o": append([]string{"mistral/mistral-large-latest"}, to...)}
		c.Endpoints.MaxRetries = 0
		c.Prices = map[string]modelgw.Price{"mockllm/model": {Rates: modelgw.Rates{Input: new(1e6), Output: new(1e6)}}, "openai/gpt-4o": {Rates: modelgw.Rates{Input: new(5e6), Output: new(5e6)}}}
	}
}

// once is a request that is tried once.
func once(question string) *modelv1.GenerateRequest {
	r := openaiAsks(question)
	r.Config = &modelv1.GenerateConfig{MaxRetries: new(int32(0))}
	return r
}

var (
	overloaded = says(http.StatusServiceUnavailable, "application/json", `{"error":{"message":"overloaded"}}`)
	// curable are the failures of a provider that another model might not have.
	curable = map[string]http.HandlerFunc{
		"overloaded":  overloaded,
		"rate limit":  refuses("3600"),
		"refused":     says(http.StatusUnauthorized, "application/json", `{"error":{"message":"no"}}`),
		"spent":       says(http.StatusTooManyRequests, "application/json", `{"error":{"message":"pay","type":"insufficient_quota","code":"insufficient_quota"}}`),
		"forbidden":   says(http.StatusForbidden, "application/json", `{"error":{"message":"no"}}`),
		"unreachable": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	}
	// incurable are failures that every model has, and outcomes that are none.
	incurable = map[string]http.HandlerFunc{
		"a bad request": says(http.StatusBadRequest, "application/json", `{"error":{"message":"no such parameter"}}`),
		"too long":      says(http.StatusBadRequest, "application/json", `{"error":{"message":"too long","code":"context_length_exceeded"}}`),
		"no answer":     says(http.StatusOK, "application/json", `[]`),
		"not found":     says(http.StatusNotFound, "application/json", `{"error":{"message":"no such model"}}`),
	}
)

func TestAFallbackAnswers(t *testing.T) {
	t.Parallel()
	for name, failure := range curable {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := serveWeb(t, vendorWith(t, failure), fallsBack("mockllm/model"))
			answer, err := g.models.Generate(t.Context(), once("q"))
			require.NoError(t, err)
			assert.Equal(t, "mockllm/model", answer.GetModel())
			assert.Equal(t, "Default output from mockllm/model", answer.GetOutput().GetCompletion())
			assert.Equal(t, "openai/gpt-4o", answer.GetOutput().GetFallback().GetModel())
			assert.Equal(t, "mockllm/model", answer.GetOutput().GetFallback().GetFallbackModel())
			usage := answer.GetOutput().GetUsage()
			assert.InDelta(t, float64(usage.GetTotalTokens()), usage.GetTotalCost(), 1e-6, "a dollar a token is the fallback's price")
			assert.Contains(t, strings.Join(answer.GetWarnings(), "\n"), "mockllm/model answered in place of openai/gpt-4o")
			require.Len(t, answer.GetFailedAttempts(), 1)
			assert.Equal(t, "openai/gpt-4o", answer.GetFailedAttempts()[0].GetModel())
			assert.Equal(t, int32(2), answer.GetTiming().GetAttempts())
		})
	}
}

func TestNoOtherModelIsAskedForWhatEachWouldRefuse(t *testing.T) {
	t.Parallel()
	for name, failure := range incurable {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := serveWeb(t, vendorWith(t, failure), fallsBack("mockllm/model"))
			_, _ = g.models.Generate(t.Context(), once("q"))
			for _, path := range []string{chatPath, messagesPath} {
				answer := g.post(t, path, `{"model":"openai/gpt-4o","max_tokens":5,`+user+`}`)
				assert.GreaterOrEqual(t, answer.StatusCode, 400, path)
				assert.Empty(t, answer.Header.Get("Evalfleet-Model"))
			}
			assert.Empty(t, g.calls(t), "the scripted model is not called")
		})
	}
}

// A fallback changes what an evaluation measures: it has one only where the request or the configuration says so.
func TestEvaluationsHaveNoFallbackUnlessTheyAskForIt(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		configured bool
		asked      *bool
		answered   bool
	}{
		"by default": {}, "by configuration": {configured: true, answered: true}, "by request": {asked: new(true), answered: true}, "against the configuration": {configured: true, asked: new(false)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := serveWeb(t, vendorWith(t, overloaded), fallsBack("mockllm/model"), func(c *modelgw.Config, _ *modelgw.Deps) { c.EvaluationFallbacks = tt.configured })
			r := once("q")
			r.Attribution, r.Fallbacks = &effectv1.Attribution{Eval: project + "/evals/e"}, tt.asked
			_, err := g.models.Generate(t.Context(), r)
			assert.Equal(t, tt.answered, err == nil, "%v", err)
		})
	}
	g := serveWeb(t, vendorWith(t, overloaded), fallsBack("mockllm/model"))
	r := once("q")
	r.Fallbacks = new(false)
	_, err := g.models.Generate(t.Context(), r)
	assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_PROVIDER_UNAVAILABLE), err)
}

// An answer of a fallback is stored as its own: the requested model is asked again once it can answer.
func TestAFallbacksAnswerIsNotCachedAsTheRequestedModels(t *testing.T) {
	t.Parallel()
	var recovered atomic.Bool
	v := vendorWith(t, func(w http.ResponseWriter, r *http.Request) {
		if !recovered.Load() {
			overloaded(w, r)
			return
		}
		says(http.StatusOK, "application/json", whole)(w, r)
	})
	g := serveWeb(t, v, fallsBack("mockllm/model"))
	ask := func() *modelv1.GenerateResponse {
		r := once("q")
		r.Config.Cache = &modelv1.CacheSetting{Enabled: true}
		answer, err := g.models.Generate(t.Context(), r)
		require.NoError(t, err)
		return answer
	}
	assert.Equal(t, "mockllm/model", ask().GetModel())
	assert.Equal(t, modelv1.CacheUse_CACHE_USE_READ, ask().GetCache(), "the fallback's own answer is")
	recovered.Store(true)
	answer := ask()
	assert.Equal(t, "openai/gpt-4o", answer.GetModel())
	assert.Equal(t, modelv1.CacheUse_CACHE_USE_WRITE, answer.GetCache())
	assert.Nil(t, answer.GetOutput().GetFallback())
}

// A call without a bound of retries would never give up: before a fallback it has one.
func TestACallWithoutABoundReachesItsFallback(t *testing.T) {
	t.Parallel()
	v := vendorWith(t, refuses("0.001"))
	g := serveWeb(t, v, fallsBack("mockllm/model"))
	answer, err := g.models.Generate(t.Context(), openaiAsks("q"))
	require.NoError(t, err)
	assert.Equal(t, "mockllm/model", answer.GetModel())
	assert.Len(t, keysAsked(v), 4)
	assert.Len(t, answer.GetFailedAttempts(), 4)
}

func TestAFallbackAnswersForAProviderThatIsNotConfigured(t *testing.T) {
	t.Parallel()
	g := serveWeb(t, nil, fallsBack("mockllm/model"))
	answer, err := g.models.Generate(t.Context(), once("q"))
	require.NoError(t, err)
	assert.Equal(t, "mockllm/model", answer.GetModel())
	assert.Contains(t, strings.Join(answer.GetWarnings(), "\n"), "has no key")
	assert.Equal(t, http.StatusOK, g.post(t, chatPath, `{"model":"openai/gpt-4o",`+user+`}`).StatusCode)
}

func TestWhereNoFallbackAnswersTheFirstFailureIsTheCalls(t *testing.T) {
	t.Parallel()
	g := serveWeb(t, vendorWith(t, overloaded), fallsBack())
	_, err := g.models.Generate(t.Context(), once("q"))
	assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_PROVIDER_UNAVAILABLE), err)
	assert.ErrorContains(t, err, "overloaded")
	assert.ErrorContains(t, err, "mistral/mistral-large-latest")
	answer := g.post(t, chatPath, `{"model":"openai/gpt-4o",`+user+`}`)
	assert.Equal(t, http.StatusServiceUnavailable, answer.StatusCode)
	message, _, _ := failure(t, answer)
	assert.Contains(t, message, "overloaded")
	assert.Empty(t, answer.Header.Get("Evalfleet-Model"))
}

// In the lane of bytes another server of the same format gets the same bytes, and a model of another format is asked by
// conversion.
func TestAFallbackAnswersARelayedRequest(t *testing.T) {
	t.Parallel()
	for name, failure := range curable {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			other := vendorWith(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Evalfleet-Model", "another/gateway") // It is not the client's gateway.
				says(http.StatusOK, "application/json", whole)(w, r)
			})
			named := func(c *modelgw.Config, _ *modelgw.Deps) {
				c.OpenAIAPI.Services = map[string]provider.Account{"other": {APIKey: config.NewSecret("other-key"), BaseURL: other.URL}}
			}
			for _, to := range []string{"openai-api/other/theirs", "mockllm/model"} {
				g := serveWeb(t, vendorWith(t, failure), fallsBack(to), named)
				answer := g.post(t, chatPath, `{"x":1,"model":"openai/gpt-4o",`+user+`}`, "Evalfleet-Account", "default")
				assert.Equal(t, http.StatusOK, answer.StatusCode)
				assert.Equal(t, to, answer.Header.Get("Evalfleet-Model"))
				if said := read(t, answer); to == "mockllm/model" {
					assert.Contains(t, said, "Default output")
					continue
				}
				assert.Equal(t, `{"x":1,"model":"theirs",`+user+`}`, string(<-other.body))
				assert.Equal(t, "Bearer other-key", (<-other.asked).Header.Get("Authorization"))
			}
		})
	}
}

// Once a piece of an answer was sent to a client, no other model can take over.
func TestAStreamThatHasBegunDoesNotFallBack(t *testing.T) {
	t.Parallel()
	v := vendorWith(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = w.Write([]byte("data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"par\"}}]}\n\n"))
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	g := serveWeb(t, v, fallsBack("mockllm/model"))
	for _, path := range []string{chatPath, messagesPath} {
		answer := g.post(t, path, `{"model":"openai/gpt-4o","max_tokens":5,"stream":true,`+user+`}`)
		body := make([]byte, 4096)
		n, _ := answer.Body.Read(body)
		assert.Contains(t, string(body[:n]), "par", path)
	}
	assert.Empty(t, g.calls(t))
}

func TestTheLastFailureBeforeAFallbackHasItsRecord(t *testing.T) {
	t.Parallel()
	g := serveWeb(t, vendorWith(t, overloaded), fallsBack("mockllm/model"))
	r := once("q")
	r.RecordFailedCall = true
	answer, err := g.models.Generate(t.Context(), r)
	require.NoError(t, err)
	require.Len(t, answer.GetFailedAttempts(), 1)
	assert.Contains(t, answer.GetFailedAttempts()[0].GetCall().GetResponseJson(), "overloaded")
}

// A fallback that cannot take the request is passed over, whether the requested model failed or is not configured.
func TestAFallbackThatCannotBeUsedIsPassedOver(t *testing.T) {
	t.Parallel()
	for name, v := range map[string]*vendor{"failed": vendorWith(t, overloaded), "not configured": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := serveWeb(t, v, fallsBack("openai-api/nosuch/model", "mockllm/model"))
			answer, err := g.models.Generate(t.Context(), once("q"))
			require.NoError(t, err)
			assert.Equal(t, "mockllm/model", answer.GetModel())
			for _, path := range []string{chatPath, messagesPath} {
				answer := g.post(t, path, `{"model":"openai/gpt-4o","max_tokens":5,`+user+`}`)
				assert.Equal(t, http.StatusOK, answer.StatusCode, path)
				assert.Equal(t, "mockllm/model", answer.Header.Get("Evalfleet-Model"), path)
				answer = g.post(t, path, `{"model":"openai/gpt-4o","max_tokens":5,"stream":true,`+user+`}`)
				assert.Equal(t, "mockllm/model", answer.Header.Get("Evalfleet-Model"), "%s, streamed", path)
				read(t, answer)
			}
		})
	}
	g := serveWeb(t, nil, fallsBack("openai-api/nosuch/model"))
	_, err := g.models.Generate(t.Context(), once("q"))
	assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_PROVIDER_NOT_CONFIGURED), err)
	assert.ErrorContains(t, err, "openai-api/nosuch/model cannot: ")
}

// Aliases are for the names of clients: a fallback is the model that the configuration names.
func TestAFallbackHasNoAlias(t *testing.T) {
	t.Parallel()
	v := vendorWith(t, overloaded)
	g := serveWeb(t, v, fallsBack("mockllm/model"), func(c *modelgw.Config, _ *modelgw.Deps) {
		c.Endpoints.Aliases = map[string]string{"*": "openai/gpt-4o"}
	})
	answer := g.post(t, chatPath, `{"model":"anything",`+user+`}`)
	assert.Equal(t, http.StatusOK, answer.StatusCode)
	assert.Equal(t, "mockllm/model", answer.Header.Get("Evalfleet-Model"))
	assert.Contains(t, read(t, answer), "Default output")
	assert.Len(t, keysAsked(v), 1)
}

// What the requested model takes and a fallback ignores is not left out in silence: a vendor's answer has no place to
// say so, and another fallback may take it.
func TestAFallbackOfAnEndpointIgnoresNothing(t *testing.T) {
	t.Parallel()
	other := vendorWith(t, says(http.StatusOK, "application/json", whole))
	g := serveWeb(t, vendorWith(t, overloaded), fallsBack("anthropic/claude-sonnet-4-5", "openai-api/other/theirs"), func(c *modelgw.Config, _ *modelgw.Deps) {
		c.Anthropic.APIKey, c.Anthropic.BaseURL = config.NewSecret("k"), other.URL
		c.OpenAIAPI.Services = map[string]provider.Account{"other": {APIKey: config.NewSecret("other-key"), BaseURL: other.URL}}
	})
	for path, body := range map[string]string{
		"/v1beta/models/openai/gpt-4o:generateContent": `{"contents":[{"role":"user","parts":[{"text":"q"}]}],"generationConfig":{"frequencyPenalty":0.5}}`,
		chatPath: `{"model":"openai/gpt-4o","frequency_penalty":0.5,` + user + `}`,
	} {
		answer := g.post(t, path, body)
		assert.Equal(t, http.StatusOK, answer.StatusCode, read(t, answer))
		assert.Equal(t, "openai-api/other/theirs", answer.Header.Get("Evalfleet-Model"), path)
		assert.Equal(t, []string{"other-key"}, keysAsked(other), path)
	}
}

// What one fallback was not sent is not said of the next, which gets the request as bytes, nor of a failure.
func TestWhatAFailedFallbackWasNotSentIsNotSaid(t *testing.T) {
	t.Parallel()
	other := vendorWith(t, says(http.StatusOK, "application/json", whole))
	for to, status := range map[string]int{"openai-api/other/theirs": http.StatusOK, "openai-api/nosuch/model": http.StatusServiceUnavailable} {
		v := vendorWith(t, overloaded)
		g := serveWeb(t, v, fallsBack("anthropic/claude-sonnet-4-5", to), func(c *modelgw.Config, _ *modelgw.Deps) {
			c.Endpoints.LeaveOut = []string{"frequency_penalty"}
			c.Anthropic.APIKey, c.Anthropic.BaseURL = config.NewSecret("k"), v.URL
			c.OpenAIAPI.Services = map[string]provider.Account{"other": {APIKey: config.NewSecret("other-key"), BaseURL: other.URL}}
		})
		answer := g.post(t, chatPath, `{"model":"openai/gpt-4o","frequency_penalty":0.5,`+user+`}`)
		assert.Equal(t, status, answer.StatusCode, "%s: %s", to, read(t, answer))
		assert.Empty(t, answer.Header.Get("Evalfleet-Unsent"), to)
	}
}
