package openaicompat_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/chat"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

// proxy is a LiteLLM proxy with documents at its paths; others are 404.
type proxy struct {
	*httptest.Server
	mu        sync.Mutex
	documents map[string]string
	asked     []string
	sent      map[string]json.RawMessage
}

func newProxy(t *testing.T, documents map[string]string) *proxy {
	t.Helper()
	p := &proxy{documents: documents}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		defer p.mu.Unlock()
		assert.Equal(t, "Bearer k", r.Header.Get("Authorization"))
		p.asked = append(p.asked, r.Method+" "+r.URL.RequestURI())
		w.Header().Set("Content-Type", "application/json")
		if r.Method == http.MethodPost {
			p.sent = nil
			assert.NoError(t, json.NewDecoder(r.Body).Decode(&p.sent))
			_, _ = fmt.Fprint(w, `{"choices":[{"message":{"content":"fine"},"finish_reason":"stop"}]}`)
			return
		}
		document, ok := p.documents[r.URL.RequestURI()]
		if !ok {
			w.WriteHeader(http.StatusNotFound)
			document = `{"error":{"message":"Key not found"}}`
		}
		_, _ = fmt.Fprint(w, document)
	}))
	t.Cleanup(p.Close)
	return p
}

// ask makes a call, and returns the body that was sent.
func (p *proxy) ask(t *testing.T, model provider.Provider, c *modelv1.GenerateConfig) (map[string]json.RawMessage, error) {
	t.Helper()
	_, err := model.Generate(t.Context(), &provider.Request{Messages: []*modelv1.ChatMessage{chat.System("s"), chat.User("q")}, Config: c})
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sent, err
}

const claudeTwice = `{"data":[
	{"model_name":"smart","litellm_params":{"model":"bedrock/us.anthropic.claude-opus-4-8"},"model_info":{"max_input_tokens":200000,"max_output_tokens":64000}},
	{"model_name":"smart","litellm_params":{"model":"arn:1"},"model_info":{"base_model":"anthropic/claude-opus-4-8","max_input_tokens":180000.0,"max_output_tokens":16000}},
	{"model_name":"mixed","litellm_params":{"model":"anthropic/codename"},"model_info":{}},
	{"model_name":"mixed","litellm_params":{"model":"openai/gpt-4o"},"model_info":{"max_input_tokens":128000}}]}`

// A proxy says what is behind a name: the window is the smallest one, and Claude gets a bound of output tokens and
// marks of its prompt cache. Aliases of the key and of its team are followed.
func TestAProxySaysWhichModelsAreBehindAName(t *testing.T) {
	t.Parallel()
	aliases := map[string]string{
		"/key/info":              `{"info":{"team_id":"t 1","aliases":{"mine":"smart","loop":"loop2","loop2":"loop"}}}`,
		"/team/info?team_id=t+1": `{"team_info":{"litellm_model_table":{"model_aliases":{"ours":"mine"}}}}`,
	}
	for _, test := range []struct {
		name, model    string
		c              *modelv1.GenerateConfig
		window         int64
		maxTokens      string
		marked, warned bool
	}{
		{name: "Claude behind all deployments", model: "smart", window: 180_000, maxTokens: "16000", marked: true},
		{name: "its own bound", model: "smart", c: &modelv1.GenerateConfig{MaxTokens: new(int64(5))}, window: 180_000, maxTokens: "5", marked: true},
		{name: "no cache", model: "smart", c: &modelv1.GenerateConfig{CachePrompt: modelv1.CachePrompt_CACHE_PROMPT_OFF}, window: 180_000, maxTokens: "16000"},
		{name: "an alias of the team, and then of the key", model: "ours", window: 180_000, maxTokens: "16000", marked: true},
		{name: "aliases in a circle", model: "loop"},
		{name: "different models", model: "mixed", c: &modelv1.GenerateConfig{CachePrompt: modelv1.CachePrompt_CACHE_PROMPT_ON}, window: 128_000, warned: true},
		{name: "a name that is not listed", model: "other"},
		{name: "Claude by its name", model: "claude-next", maxTokens: "32000", marked: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			documents := map[string]string{"/v1/model/info": claudeTwice}
			for path, document := range aliases {
				documents[path] = document
			}
			server := newProxy(t, documents)
			p := openAt(t, "litellm-proxy", test.model, server.URL+"/v1", `{"stream": false}`)
			c := test.c
			if c == nil {
				c = &modelv1.GenerateConfig{}
			}
			for range 2 {
				sent, err := server.ask(t, p, c)
				require.NoError(t, err)
				assert.Equal(t, test.maxTokens, string(sent["max_tokens"]))
				assert.Equal(t, test.marked, strings.Contains(string(sent["messages"]), `"cache_control"`), "%s", sent["messages"])
			}
			tokens, _ := p.(provider.Windowed).ContextTokens()
			assert.Equal(t, test.window, tokens)
			unsent := provider.Fit(p, c).Unsent
			assert.Equal(t, test.warned, len(unsent) > 0, "%v", unsent)
			assert.Equal(t, []string{
				"GET /v1/model/info", "GET /key/info", "GET /team/info?team_id=t+1", "POST /v1/chat/completions", "POST /v1/chat/completions",
			}, server.asked, "the list is read once")
		})
	}
}

// A list that cannot be read fails the call before anything is sent to a model, and the next call asks again; the
// argument model_info calls without it.
func TestAProxyWithoutItsListIsNotCalled(t *testing.T) {
	t.Parallel()
	for name, document := range map[string]string{"no list": `{"object":"list"}`, "no JSON": `<html>`, "none": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			documents := map[string]string{}
			if document != "" {
				documents["/v1/model/info"] = document
			}
			server := newProxy(t, documents)
			p := openAt(t, "litellm-proxy", "m", server.URL+"/v1", `{"stream": false}`)
			_, err := server.ask(t, p, &modelv1.GenerateConfig{})
			require.ErrorContains(t, err, "set the model argument model_info to false")
			assert.Equal(t, provider.Final, provider.ClassOfError(err))
			assert.Nil(t, server.sent)
			server.mu.Lock()
			server.documents["/v1/model/info"] = `{"data":[]}`
			server.mu.Unlock()
			_, err = server.ask(t, p, &modelv1.GenerateConfig{})
			require.NoError(t, err)
		})
	}
	server := newProxy(t, nil)
	p := openAt(t, "litellm-proxy", "m", server.URL+"/v1", `{"stream": false, "model_info": false}`)
	_, err := server.ask(t, p, &modelv1.GenerateConfig{})
	require.NoError(t, err)
	assert.Equal(t, []string{"POST /v1/chat/completions"}, server.asked)
	// An address where nothing listens is no fault of the list.
	server.Close()
	p = openAt(t, "litellm-proxy", "m", server.URL+"/v1", "")
	_, err = server.ask(t, p, &modelv1.GenerateConfig{})
	assert.Equal(t, provider.Transient, provider.ClassOfError(err))
}
