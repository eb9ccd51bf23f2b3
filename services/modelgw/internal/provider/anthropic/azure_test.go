package anthropic_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/config"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/anthropic"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/providertest"
)

// A model on Azure has the key of Azure, and not what only Anthropic itself has.
func TestAModelOnAzure(t *testing.T) {
	t.Parallel()
	var got *http.Request
	var body []byte
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r
		body, _ = io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"type":"message","role":"assistant","model":"claude-sonnet-5-5","content":[{"type":"text","text":"fine"}],"stop_reason":"end_turn"}`)
	}))
	t.Cleanup(server.Close)
	c := anthropic.Config{
		APIKey: config.NewSecret("key-of-anthropic"), AuthToken: config.NewSecret("token-of-anthropic"), BaseURL: "http://127.0.0.1:1",
		Azure: anthropic.AzureConfig{AzureAPIKey: config.NewSecret("key-of-azure"), AzureBaseURL: server.URL + "/anthropic"},
	}
	p, err := openModel(t, c, provider.Spec{Model: "azure/claude-sonnet-5-5", Args: `{"streaming":false}`})
	require.NoError(t, err)
	fallback := &modelv1.GenerateConfig{FallbackModels: &modelv1.StringList{Values: []string{"m"}}}
	fitted := provider.Fit(p, fallback)
	assert.Equal(t, []provider.Unsent{{Option: "fallback_models", Why: "which does not take it"}}, fitted.Unsent)
	_, err = p.Generate(t.Context(), &provider.Request{Messages: []*modelv1.ChatMessage{chat.User("q")}, Config: fitted.Sent})
	require.NoError(t, err)
	assert.Equal(t, "/anthropic/v1/messages", got.URL.Path)
	assert.Equal(t, []string{"key-of-azure", "key-of-azure", ""}, []string{got.Header.Get("Api-Key"), got.Header.Get("X-Api-Key"), got.Header.Get("Authorization")})
	assert.Contains(t, string(body), `"model":"claude-sonnet-5-5"`)
	assert.NotContains(t, string(body), "block_binding")
	assert.NotContains(t, got.Header.Get("Anthropic-Beta"), "binding")
	assert.Equal(t, "azure/claude-sonnet-5-5", p.Capabilities().ConnectionKey)
	h := http.Header{"Api-Key": {"of a client"}}
	p.Capabilities().Upstreams[0].Authorize(h)
	assert.Equal(t, "key-of-azure", h.Get("Api-Key"))
}

// No option of a configuration is passed over without a word.
func TestEveryOptionIsSentToAzureOrSaidNotToBe(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"claude-sonnet-4-5", "claude-opus-4-8", "claude-sonnet-5-5"} {
		providertest.Options(t, func(t *testing.T, root string) provider.Provider {
			p, err := open(t, providertest.GoldenSetup{Service: "azure", APIKey: "k", BaseURL: root}).Open(provider.Spec{Model: "azure/" + name, Account: provider.DefaultAccount})
			require.NoError(t, err)
			return p
		})
	}
}
