package openai_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/config"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/openai"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/providertest"
)

// On Azure a deployment, the version of the API and the key have places of their own; the name of the deployment
// decides about the API, and one without a known name is no code name.
func TestWhereRequestsToAzureGo(t *testing.T) {
	t.Parallel()
	var got *http.Request
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Path == "/openai/responses" {
			_, _ = w.Write([]byte(`{"id":"r","object":"response","status":"completed","model":"m","output":[{"type":"message","role":"assistant","content":[{"type":"output_text","text":"fine","annotations":[]}]}]}`))
			return
		}
		_, _ = w.Write([]byte(`{"choices":[{"index":0,"message":{"content":"fine"},"finish_reason":"stop"}]}`))
	}))
	t.Cleanup(server.Close)
	kind, closeIdle := openai.Kind(openai.Config{
		APIKey: config.NewSecret("key-of-openai"), BaseURL: "http://127.0.0.1:1", Organization: "org",
		Azure: openai.AzureConfig{AzureAPIKey: config.NewSecret("key-of-azure"), Endpoint: server.URL + "/", OpenAIAPIVersion: "2026-01-01"},
	})
	t.Cleanup(func() { _ = closeIdle() })
	for name, tt := range map[string]struct{ model, args, want string }{
		"a deployment":       {"azure/my deployment", "", "/openai/deployments/my%20deployment/chat/completions?api-version=2026-01-01"},
		"another version":    {"azure/gpt-4o", `{"api_version":"v9&x"}`, "/openai/deployments/gpt-4o/chat/completions?api-version=v9%26x"},
		"its own API":        {"azure/gpt-5", "", "/openai/responses?api-version=2026-01-01"},
		"an API that is set": {"azure/gpt-5", `{"responses_api":false}`, "/openai/deployments/gpt-5/chat/completions?api-version=2026-01-01"},
	} {
		p, err := kind.Open(provider.Spec{Model: tt.model, Account: provider.DefaultAccount, Args: tt.args})
		require.NoError(t, err, name)
		response, err := p.Generate(t.Context(), &provider.Request{Messages: []*modelv1.ChatMessage{chat.User("q")}})
		require.NoError(t, err, name)
		assert.Equal(t, "fine", chat.Completion(response.Output), name)
		assert.Equal(t, tt.want, got.URL.RequestURI(), name)
		assert.Equal(t, []string{"key-of-azure", "", ""}, []string{got.Header.Get("Api-Key"), got.Header.Get("Authorization"), got.Header.Get("Openai-Organization")}, name)
		assert.Equal(t, tt.model, p.Capabilities().ConnectionKey, "a deployment has a quota of its own")
	}
}

// openAzure opens a deployment on an Azure at an address.
func openAzure(t *testing.T, deployment, args, address string) provider.Provider {
	t.Helper()
	kind := open(t, providertest.GoldenSetup{Service: "azure", APIKey: "k", BaseURL: address})
	p, err := kind.Open(provider.Spec{Model: "azure/" + deployment, Account: provider.DefaultAccount, Args: args})
	require.NoError(t, err)
	return p
}

func TestSuiteOnAzure(t *testing.T) {
	t.Parallel()
	for args, serve := range servers {
		t.Run(args, func(t *testing.T) {
			t.Parallel()
			providertest.Run(t, providertest.Harness{New: func(t *testing.T, answers ...providertest.Answer) provider.Provider {
				return openAzure(t, "gpt-4o", args, serve(t, answers...))
			}})
		})
	}
}

// No option of a configuration is dropped silently.
func TestEveryOptionIsSentToAzureOrSaidNotToBe(t *testing.T) {
	t.Parallel()
	for _, deployment := range []string{"gpt-4o", "gpt-5", "o3", "my-deployment"} {
		t.Run(deployment, func(t *testing.T) {
			t.Parallel()
			providertest.Options(t, func(t *testing.T, root string) provider.Provider { return openAzure(t, deployment, "", root) })
		})
	}
}
