package modelgw_test

import (
	"bytes"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/config"
	"github.com/evalfleet/evalfleet/pkg/daemon"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/services/modelgw"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/azureauth"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/openaicompat"
)

// twoKeys gives the provider openai two keys beside none of its own.
func twoKeys(c *modelgw.Config, _ *modelgw.Deps) {
	c.OpenAI.APIKey = config.Secret{}
	c.OpenAI.Keys = []provider.Key{{APIKey: config.NewSecret("key-one")}, {APIKey: config.NewSecret("key-two")}}
}

// byKey answers each key in its own way; others get an answer.
func byKey(answers map[string]http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if answer, ok := answers[strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")]; ok {
			answer(w, r)
			return
		}
		says(http.StatusOK, "application/json", whole)(w, r)
	}
}

// keysAsked are the keys that a vendor was asked with.
func keysAsked(v *vendor) []string {
	var all []string
	for len(v.asked) > 0 {
		all = append(all, strings.TrimPrefix((<-v.asked).Header.Get("Authorization"), "Bearer "))
		<-v.body
	}
	return all
}

func openaiAsks(question string) *modelv1.GenerateRequest {
	return &modelv1.GenerateRequest{Parent: project, Model: "openai/gpt-4o", Messages: []*modelv1.ChatMessage{chat.User(question)}}
}

var failuresOfKeys = map[string]http.HandlerFunc{
	"rate limit": refuses("30"),
	"refused":    says(http.StatusUnauthorized, "application/json", `{"error":{"message":"Incorrect API key provided: key-one"}}`),
	"spent":      says(http.StatusTooManyRequests, "application/json", `{"error":{"message":"pay","type":"insufficient_quota","code":"insufficient_quota"}}`),
	"forbidden":  says(http.StatusForbidden, "application/json", `{"error":{"message":"not for this key"}}`),
	"unreachable": func(http.ResponseWriter, *http.Request) {
		panic(http.ErrAbortHandler)
	},
}

// A key that cannot be used costs no wait and no retry: another one is asked at once, and until the first has rested.
func TestAnotherKeyAnswersAtOnce(t *testing.T) {
	t.Parallel()
	for name, failure := range failuresOfKeys {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := vendorWith(t, byKey(map[string]http.HandlerFunc{"key-one": failure}))
			registry := prometheus.NewRegistry()
			g := serveWeb(t, v, twoKeys, func(_ *modelgw.Config, d *modelgw.Deps) { d.Registerer = registry })
			passedOver := false
			for n := range 12 {
				r := openaiAsks(strings.Repeat("q", n+1))
				r.Config = &modelv1.GenerateConfig{MaxRetries: new(int32(0))}
				answer, err := g.models.Generate(waittest.Context(t), r)
				require.NoError(t, err)
				assert.Equal(t, int32(2), answer.GetKey())
				assert.Equal(t, "default", answer.GetAccount())
				assert.Equal(t, "openai/gpt-4o", answer.GetModel())
				if failed := answer.GetFailedAttempts(); len(failed) > 0 {
					passedOver = true
					require.Len(t, failed, 1)
					assert.Equal(t, int32(1), failed[0].GetKey())
					assert.Zero(t, failed[0].GetWait().AsDuration())
					assert.NotContains(t, failed[0].GetError(), "key-one")
				}
			}
			assert.True(t, passedOver)
			counts := map[string]int{}
			for _, key := range keysAsked(v) {
				counts[key]++
			}
			assert.Equal(t, map[string]int{"key-one": 1, "key-two": 12}, counts, "the first rests")
			families, err := registry.Gather()
			require.NoError(t, err)
			rests := 0.0
			for _, family := range families {
				if family.GetName() == "evalfleet_model_key_rests_total" {
					rests += family.GetMetric()[0].GetCounter().GetValue()
				}
			}
			assert.InDelta(t, 1, rests, 0)
		})
	}
}

func TestAnotherKeyAnswersARelayedRequest(t *testing.T) {
	t.Parallel()
	for name, failure := range failuresOfKeys {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := vendorWith(t, byKey(map[string]http.HandlerFunc{"key-one": failure}))
			g := serveWeb(t, v, twoKeys, func(c *modelgw.Config, _ *modelgw.Deps) { c.Endpoints.MaxRetries = 0 })
			for n := range 12 {
				answer := g.post(t, chatPath, `{"model":"openai/gpt-4o","messages":[{"role":"user","content":"`+strings.Repeat("q", n+1)+`"}]}`)
				assert.Equal(t, http.StatusOK, answer.StatusCode)
				assert.Equal(t, whole, read(t, answer))
			}
			asked := keysAsked(v)
			assert.Len(t, asked, 13)
			assert.Contains(t, asked, "key-one")
		})
	}
}

// The turns of a conversation have one key, in either lane, and different conversations have different ones.
func TestAConversationKeepsItsKey(t *testing.T) {
	t.Parallel()
	v := vendorWith(t, says(http.StatusOK, "application/json", whole))
	g := serveWeb(t, v, twoKeys)
	used := map[string]bool{}
	for n := range 8 {
		question := "question " + strings.Repeat("q", n)
		turns := []*modelv1.ChatMessage{chat.System("the same for all"), chat.User(question)}
		body := `{"role":"system","content":"the \"same\" for all"},{"content":[{"type":"text","text":"} ` + question + `"}],"role":"user"}`
		for range 3 {
			_, err := g.models.Generate(t.Context(), &modelv1.GenerateRequest{Parent: project, Model: "openai/gpt-4o", Messages: turns})
			require.NoError(t, err)
			turns = append(turns, chat.Assistant("answer"), chat.User("more"))
		}
		canonical := keysAsked(v)
		assert.Equal(t, []string{canonical[0], canonical[0], canonical[0]}, canonical)
		for range 3 {
			read(t, g.post(t, chatPath, `{"messages":[`+body+`],"model":"openai/gpt-4o"}`))
			body += `,{"role":"assistant","content":"answer"},{"role":"user","content":"more"}`
		}
		relayed := keysAsked(v)
		assert.Equal(t, []string{relayed[0], relayed[0], relayed[0]}, relayed)
		used[canonical[0]], used["relayed "+relayed[0]] = true, true
	}
	assert.Len(t, used, 4)
}

// Each credential has a pool of its own, whose name has its number and never the key.
func TestEachKeyHasAPool(t *testing.T) {
	t.Parallel()
	v := vendorWith(t, says(http.StatusOK, "application/json", whole))
	g := serveWeb(t, v, twoKeys)
	for n := range 8 {
		_, err := g.models.Generate(t.Context(), openaiAsks(strings.Repeat("q", n)))
		require.NoError(t, err)
	}
	pools, err := g.limits.ListConnectionPools(t.Context(), &modelv1.ListConnectionPoolsRequest{Parent: "accounts/openai/default"})
	require.NoError(t, err)
	var names []string
	for _, p := range pools.GetConnectionPools() {
		names = append(names, p.GetName())
	}
	require.Len(t, names, 2)
	assert.True(t, strings.HasSuffix(names[0], "@key1") && strings.HasSuffix(names[1], "@key2"), names)
}

func TestWhereAllKeysFailTheCallDoes(t *testing.T) {
	t.Parallel()
	refused := says(http.StatusUnauthorized, "application/json", `{"error":{"message":"no"}}`)
	v := vendorWith(t, byKey(map[string]http.HandlerFunc{"key-one": refused, "key-two": refused}))
	g := serveWeb(t, v, twoKeys)
	_, err := g.models.Generate(t.Context(), openaiAsks("q"))
	assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_PROVIDER_CREDENTIALS_REJECTED), err)
	assert.Len(t, keysAsked(v), 2)
	listed, err := g.models.ListProviders(t.Context(), &modelv1.ListProvidersRequest{})
	require.NoError(t, err)
	for _, p := range listed.GetProviders() {
		if p.GetName() == "openai" {
			assert.Equal(t, int32(2), p.GetAccounts()[0].GetKeys())
		}
	}
}

func TestFaultsOfKeysAreNamed(t *testing.T) {
	t.Parallel()
	var c modelgw.Config
	c.SetDefaults()
	c.Google.Keys = []provider.Key{{Weight: new(1)}, {APIKey: config.NewSecret("k\n"), BaseURL: "ftp://x"}}
	c.Anthropic.AuthToken = config.NewSecret("a\tb")
	identity := azureauth.Identity{ManagedIdentity: true}
	c.Services = openaicompat.Services{"azureai": {Accounts: map[string]openaicompat.Account{
		"both": {Account: provider.Account{BaseURL: "https://a.example", Keys: []provider.Key{{APIKey: config.NewSecret("k")}}}, Identity: identity},
		"one":  {Account: provider.Account{BaseURL: "https://a.example"}, Identity: identity},
	}}}
	c.Fallbacks = map[string][]string{"openai/a": {"b", "openai/a", "opnai/b", "vllm/c", "openai-api/d/e"}}
	err := c.Validate()
	for _, said := range []string{"google.keys[0]: api_key is missing", "google.keys[1].base_url", "google.keys[1].api_key: has a line break", "anthropic.auth_token: has a line break", "fallbacks.openai/a", "services.azureai.accounts.both: has keys, beside which its identity is not used", "cannot be its own fallback", `fallbacks.openai/a: unknown provider "opnai"`} {
		assert.ErrorContains(t, err, said)
	}
	assert.NotContains(t, err.Error(), "azureai.accounts.one")
	c.Google.Keys[1].BaseURL = "http://127.0.0.1:7460/v1"
	assert.ErrorContains(t, c.RefuseOwn("127.0.0.1:7460"), "google.keys[1]")
	_, err = modelgw.Program(c).Build(t.Context(), daemon.Parts{Listen: "0.0.0.0:7460"})
	require.ErrorContains(t, err, "google.keys[1]", "modelgw alone knows its own address")
}

// The identity of an account `default` may come from variables of the whole machine. Beside keys it is no error, but
// the operator learns that it is not used.
func TestAnIdentityThatIsNotUsedIsInTheLog(t *testing.T) {
	t.Parallel()
	identity := azureauth.Default{ManagedIdentity: true}
	keys := []provider.Key{{APIKey: config.NewSecret("k")}}
	var log bytes.Buffer
	var next modelgw.Config
	v := vendorWith(t, says(http.StatusOK, "application/json", whole))
	g := serveWeb(t, v, func(c *modelgw.Config, d *modelgw.Deps) {
		c.OpenAI.Azure.Identity, c.OpenAI.Azure.Keys = identity, keys
		c.Anthropic.Azure.Identity = identity
		d.Logger, next = slog.New(slog.NewTextHandler(&log, nil)), *c
	})
	const unused = "has keys, beside which its identity is not used"
	assert.Contains(t, log.String(), "modelgw.openai.azure "+unused)
	assert.NotContains(t, log.String(), "modelgw.anthropic")
	next.Anthropic.Azure.Keys = keys
	require.NoError(t, g.service.Reload(t.Context(), next))
	assert.Contains(t, log.String(), "modelgw.anthropic.azure "+unused)
}

// An attempt that the gateway ended proves nothing about the key, also if it ends amid the answer.
func TestAnAttemptThatIsCutShortMakesNoKeyRest(t *testing.T) {
	t.Parallel()
	v := vendorWith(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	registry := prometheus.NewRegistry()
	g := serveWeb(t, v, twoKeys, func(c *modelgw.Config, d *modelgw.Deps) {
		c.Endpoints.MaxRetries, c.AttemptTimeout, d.Registerer = 0, 20*time.Millisecond, registry
	})
	answer := g.post(t, chatPath, `{"model":"openai/gpt-4o",`+user+`}`)
	assert.Equal(t, http.StatusServiceUnavailable, answer.StatusCode)
	assert.Contains(t, read(t, answer), "the attempt took longer than 20ms")
	assert.Len(t, keysAsked(v), 1)
	families, err := registry.Gather()
	require.NoError(t, err)
	for _, family := range families {
		assert.NotEqual(t, "evalfleet_model_key_rests_total", family.GetName())
	}
}

// A request that every key is refused makes none rest: other conversations keep their keys.
func TestARequestThatIsForbiddenRestsNoKey(t *testing.T) {
	t.Parallel()
	var v *vendor
	v = vendorWith(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(string(<-v.body), "forbidden") {
			says(http.StatusForbidden, "application/json", `{"error":{"message":"this prompt is not allowed"}}`)(w, r)
			return
		}
		says(http.StatusOK, "application/json", whole)(w, r)
	})
	g := serveWeb(t, v, twoKeys)
	key := map[int]int32{}
	for n := range 12 {
		answer, err := g.models.Generate(waittest.Context(t), openaiAsks(strings.Repeat("q", n+1)))
		require.NoError(t, err)
		key[n] = answer.GetKey()
	}
	_, err := g.models.Generate(waittest.Context(t), openaiAsks("forbidden"))
	require.ErrorContains(t, err, "this prompt is not allowed")
	for n := range 12 {
		answer, err := g.models.Generate(waittest.Context(t), openaiAsks(strings.Repeat("q", n+1)))
		require.NoError(t, err)
		assert.Equal(t, key[n], answer.GetKey())
		assert.Empty(t, answer.GetFailedAttempts())
	}
	assert.Len(t, v.asked, 12+2+12, "each key was asked once for what is forbidden")
}

// Where every other key rests, none can show whether it is the request that is refused: the last key stays in use.
func TestTheLastKeyDoesNotRestForARequestThatIsForbidden(t *testing.T) {
	t.Parallel()
	var v *vendor
	v = vendorWith(t, func(w http.ResponseWriter, r *http.Request) {
		body := string(<-v.body)
		switch {
		case strings.HasSuffix(r.Header.Get("Authorization"), "key-one"):
			says(http.StatusUnauthorized, "application/json", `{"error":{"message":"no"}}`)(w, r)
		case strings.Contains(body, "forbidden"):
			says(http.StatusForbidden, "application/json", `{"error":{"message":"this prompt is not allowed"}}`)(w, r)
		default:
			says(http.StatusOK, "application/json", whole)(w, r)
		}
	})
	registry := prometheus.NewRegistry()
	g := serveWeb(t, v, twoKeys, func(_ *modelgw.Config, d *modelgw.Deps) { d.Registerer = registry })
	for n := range 12 { // Among them are conversations of the first key, which rests from then on.
		_, err := g.models.Generate(waittest.Context(t), openaiAsks(strings.Repeat("q", n+1)))
		require.NoError(t, err)
	}
	_, err := g.models.Generate(waittest.Context(t), openaiAsks("forbidden"))
	require.ErrorContains(t, err, "this prompt is not allowed")
	families, err := registry.Gather()
	require.NoError(t, err)
	rested := map[string]float64{}
	for _, family := range families {
		if family.GetName() != "evalfleet_model_key_rests_total" {
			continue
		}
		for _, m := range family.GetMetric() {
			for _, label := range m.GetLabel() {
				if label.GetName() == "key" {
					rested[label.GetValue()] += m.GetCounter().GetValue()
				}
			}
		}
	}
	assert.Equal(t, map[string]float64{"1": 1}, rested)
}

// A count of tokens has the key of its conversation, in either lane.
func TestACountOfTokensHasTheKeyOfItsConversation(t *testing.T) {
	t.Parallel()
	v := vendorWith(t, func(w http.ResponseWriter, r *http.Request) {
		answer := `{"type":"message","role":"assistant","content":[{"type":"text","text":"x"}],"stop_reason":"end_turn","usage":{"input_tokens":1,"output_tokens":1}}`
		if strings.HasSuffix(r.URL.Path, "/count_tokens") {
			answer = `{"input_tokens":7}`
		}
		says(http.StatusOK, "application/json", answer)(w, r)
	})
	g := serveMessages(t, v, func(c *modelgw.Config, _ *modelgw.Deps) {
		c.Anthropic.Keys = []provider.Key{{APIKey: config.NewSecret("key-one")}, {APIKey: config.NewSecret("key-two")}}
	})
	used := map[string]bool{}
	keys := func() []string {
		var all []string
		for len(v.asked) > 0 {
			r := <-v.asked
			all = append(all, r.Header.Get("X-Api-Key"))
		}
		return all
	}
	for n := range 8 {
		question := strings.Repeat("q", n+1)
		_, err := g.models.Generate(waittest.Context(t), &modelv1.GenerateRequest{
			Parent: project, Model: "anthropic/claude-3-5-haiku", ModelArgsJson: `{"streaming":false}`, Messages: []*modelv1.ChatMessage{chat.User(question)},
		})
		require.NoError(t, err)
		_, err = g.models.CountTokens(waittest.Context(t), &modelv1.CountTokensRequest{Parent: project, Model: "anthropic/claude-3-5-haiku", Messages: []*modelv1.ChatMessage{chat.User(question)}})
		require.NoError(t, err)
		asked := keys()
		require.Len(t, asked, 2)
		assert.Equal(t, asked[0], asked[1], question)
		used[asked[0]] = true

		body := `{"model":"anthropic/claude-3-5-haiku","max_tokens":5,"messages":[{"role":"user","content":"` + question + `"}]}`
		read(t, g.post(t, "/v1/messages", body))
		read(t, g.post(t, "/v1/messages/count_tokens", strings.Replace(body, `"max_tokens":5,`, "", 1)))
		asked = keys()
		require.Len(t, asked, 2)
		assert.Equal(t, asked[0], asked[1], question)
	}
	assert.Greater(t, len(used), 1)
}
