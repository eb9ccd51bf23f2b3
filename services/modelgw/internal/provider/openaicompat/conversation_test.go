package openaicompat_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/chat"
	effectv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/effect/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/providertest"
)

// ofRun is a request of a run; without one of none.
func ofRun(run string) *provider.Request {
	r := &provider.Request{Messages: []*modelv1.ChatMessage{chat.User("q")}, Config: &modelv1.GenerateConfig{}, Record: provider.RecordAll}
	if run != "" {
		r.Origin.Attribution = &effectv1.Attribution{Run: run}
	}
	return r
}

// Services whose prompt caches are those of single servers are told which requests belong together: the same for all of
// one run, another one for each run, and none outside of runs. A header of the caller's own replaces it.
func TestTheConversationOfARequest(t *testing.T) {
	t.Parallel()
	for service, name := range map[string]string{
		"cloudflare": "X-Session-Affinity", "fireworks": "X-Session-Affinity", "openrouter": "X-Session-Id",
	} {
		t.Run(service, func(t *testing.T) {
			t.Parallel()
			var got []string
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				got = append(got, r.Header.Get(name))
				w.Header().Set("Content-Type", "application/json")
				_, _ = w.Write([]byte(`{"id":"a","choices":[{"message":{"role":"assistant","content":"fine"},"finish_reason":"stop"}]}`))
			}))
			t.Cleanup(server.Close)
			p := openAt(t, service, "m", server.URL, "")
			own := ofRun("projects/p/runs/a")
			own.Config.ExtraHeaders = &modelv1.HeaderMap{Values: map[string]string{name: "mine"}}
			for _, r := range []*provider.Request{ofRun("projects/secret/runs/a"), ofRun("projects/secret/runs/a"), ofRun("projects/p/runs/a"), ofRun(""), own} {
				_, err := p.Generate(t.Context(), r)
				require.NoError(t, err)
			}
			require.Len(t, got, 5)
			assert.Equal(t, got[0], got[1])
			assert.Regexp(t, "^[0-9a-f]{32}$", got[0])
			assert.NotEqual(t, got[0], got[2])
			assert.Equal(t, []string{"", "mine"}, got[3:])
		})
	}
}

// Meta is told in a member of the request, in either format; one of the caller's own replaces it.
func TestTheConversationOfARequestToMeta(t *testing.T) {
	t.Parallel()
	for args, serve := range formats {
		p := openAt(t, "meta", "muse-spark-1", serve(t, providertest.Answer{Text: "a"}, providertest.Answer{Text: "b"}), args)
		for extra, want := range map[string]string{"": `"prompt_cache_key":"[0-9a-f]{32}"`, `{"prompt_cache_key":"mine"}`: `"prompt_cache_key":"mine"`} {
			r := ofRun("projects/p/runs/a")
			r.Config.ExtraBodyJson = &extra
			response, err := p.Generate(t.Context(), r)
			require.NoError(t, err)
			assert.Regexp(t, want, response.Call.GetRequestJson(), args)
		}
	}
}

// xAI is told behind a LiteLLM proxy too, where its list says that xAI's models are there.
func TestTheConversationOfARequestBehindAProxy(t *testing.T) {
	t.Parallel()
	for model, want := range map[string]string{"theirs": "^[0-9a-f]{32}$", "other": "^$"} {
		var got string
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			if r.Method == http.MethodGet {
				_, _ = w.Write([]byte(`{"data":[{"model_name":"theirs","litellm_params":{"model":"xai/grok-4"}},
					{"model_name":"other","litellm_params":{"model":"openai/gpt-4o"}}]}`))
				return
			}
			got = r.Header.Get("X-Grok-Conv-Id")
			_, _ = w.Write([]byte(`{"id":"a","choices":[{"message":{"role":"assistant","content":"fine"},"finish_reason":"stop"}]}`))
		}))
		t.Cleanup(server.Close)
		_, err := openAt(t, "litellm-proxy", model, server.URL, `{"stream": false}`).Generate(t.Context(), ofRun("projects/p/runs/a"))
		require.NoError(t, err)
		assert.Regexp(t, want, got, model)
	}
}
