package google_test

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
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/google"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/providertest"
)

// openOf opens a model with a configuration.
func openOf(t testing.TB, c google.Config, spec provider.Spec) (provider.Provider, error) {
	t.Helper()
	kind, closeIdle := google.Kind(c)
	t.Cleanup(func() { _ = closeIdle() })
	spec.Account = provider.DefaultAccount
	return kind.Open(spec)
}

// vertexAt is a configuration of Vertex AI at an address.
func vertexAt(t testing.TB, address string) google.Config {
	t.Helper()
	c := google.Config{APIKey: config.NewSecret("key-of-the-gemini-api"), Vertex: google.VertexConfig{BaseURL: address, Project: "my-project", Location: "us-central1"}}
	c.Vertex.Credentials = providertest.GoogleCredentials(t)
	return c
}

func TestSuiteOnVertex(t *testing.T) {
	t.Parallel()
	providertest.Run(t, providertest.Harness{New: func(t *testing.T, answers ...providertest.Answer) provider.Provider {
		p, err := openOf(t, vertexAt(t, providertest.GeminiServer(t, answers...)), provider.Spec{Model: "vertex/gemini-2.5-flash"})
		require.NoError(t, err)
		return p
	}})
}

// No option of a configuration is passed over without a word.
func TestEveryOptionIsSentToVertexOrSaidNotToBe(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"gemini-2.0-flash", "gemini-2.5-pro", "gemini-3-pro-preview"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			providertest.Options(t, func(t *testing.T, root string) provider.Provider {
				p, err := openOf(t, vertexAt(t, root), provider.Spec{Model: "vertex/" + name})
				require.NoError(t, err)
				return p
			})
		})
	}
}

// asked records the requests of a server and answers them alike.
func asked(t *testing.T) (address string, seen func() (r *http.Request, body string)) {
	t.Helper()
	var last *http.Request
	var body string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		raw, _ := io.ReadAll(r.Body)
		last, body = r, string(raw)
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"candidates":[{"content":{"role":"model","parts":[{"text":"fine"}]},"finishReason":"STOP"}],"totalTokens":3}`)
	}))
	t.Cleanup(server.Close)
	return server.URL, func() (*http.Request, string) { return last, body }
}

// Where a request goes and what it has depends on the credentials.
func TestWhereRequestsWithEachCredentialGo(t *testing.T) {
	t.Parallel()
	const models = "/publishers/google/models/gemini-2.5-flash:generateContent"
	address, seen := asked(t)
	onVertex := vertexAt(t, address)
	always := vertexAt(t, address)
	always.Vertex.Always, always.QuotaProject = true, "billed"
	express := google.Config{Vertex: google.VertexConfig{BaseURL: address, APIKey: config.NewSecret("key-of-express-mode")}}
	identity := google.Config{BaseURL: address, UseADC: true, QuotaProject: "billed"}
	identity.Credentials = providertest.GoogleCredentials(t)
	keyed := identity
	keyed.APIKey = config.NewSecret("key-of-the-gemini-api")
	shared := identity
	shared.Keys = []provider.Key{{APIKey: config.NewSecret("key-of-the-gemini-api")}}
	for name, tt := range map[string]struct {
		config                    google.Config
		spec                      provider.Spec
		path, bearer, key, billed string
	}{
		"on Vertex":                   {onVertex, provider.Spec{Model: "vertex/gemini-2.5-flash"}, "/v1beta1/projects/my-project/locations/us-central1" + models, "Bearer access-token-of-google", "", ""},
		"elsewhere":                   {onVertex, provider.Spec{Model: "vertex/gemini-2.5-flash", Args: `{"project":"other","location":"global","api_version":"v1"}`}, "/v1/projects/other/locations/global" + models, "Bearer access-token-of-google", "", ""},
		"by a variable":               {always, provider.Spec{Model: "gemini-2.5-flash"}, "/v1beta1/projects/my-project/locations/us-central1" + models, "Bearer access-token-of-google", "", "billed"},
		"in express mode":             {express, provider.Spec{Model: "vertex/gemini-2.5-flash"}, "/v1beta1" + models, "", "key-of-express-mode", ""},
		"by an identity":              {identity, provider.Spec{Model: "gemini-2.5-flash"}, "/v1beta/models/gemini-2.5-flash:generateContent", "Bearer access-token-of-google", "", "billed"},
		"by an argument":              {keyed, provider.Spec{Model: "gemini-2.5-flash", Args: `{"use_adc":true,"quota_project_id":"p"}`}, "/v1beta/models/gemini-2.5-flash:generateContent", "Bearer access-token-of-google", "", "p"},
		"by the key":                  {keyed, provider.Spec{Model: "gemini-2.5-flash"}, "/v1beta/models/gemini-2.5-flash:generateContent", "", "key-of-the-gemini-api", ""},
		"by one of keys":              {shared, provider.Spec{Model: "gemini-2.5-flash"}, "/v1beta/models/gemini-2.5-flash:generateContent", "", "key-of-the-gemini-api", ""},
		"by an argument, beside keys": {shared, provider.Spec{Model: "gemini-2.5-flash", Args: `{"use_adc":true,"quota_project_id":"p"}`}, "/v1beta/models/gemini-2.5-flash:generateContent", "Bearer access-token-of-google", "", "p"},
	} {
		p, err := openOf(t, tt.config, tt.spec)
		require.NoError(t, err, name)
		_, err = p.Generate(t.Context(), &provider.Request{Messages: []*modelv1.ChatMessage{chat.User("q")}})
		require.NoError(t, err, name)
		got, _ := seen()
		assert.Equal(t, []string{tt.path, tt.bearer, tt.key, tt.billed}, []string{
			got.URL.Path, got.Header.Get("Authorization"), got.Header.Get("X-Goog-Api-Key"), got.Header.Get("X-Goog-User-Project"),
		}, name)
	}
}

// Vertex AI counts the parts that have tokens, and knows no other members.
func TestCountingOnVertex(t *testing.T) {
	t.Parallel()
	address, seen := asked(t)
	p, err := openOf(t, vertexAt(t, address), provider.Spec{Model: "vertex/gemini-2.5-flash"})
	require.NoError(t, err)
	tokens, err := p.(provider.TokenCounter).CountTokens(t.Context(), &provider.Request{Messages: []*modelv1.ChatMessage{chat.System("s"), chat.User("q")}})
	require.NoError(t, err)
	assert.Equal(t, int64(3), tokens)
	got, body := seen()
	assert.Equal(t, "/v1beta1/projects/my-project/locations/us-central1/publishers/google/models/gemini-2.5-flash:countTokens", got.URL.Path)
	assert.JSONEq(t, `{"contents":[{"role":"user","parts":[{"text":"q"}]}],"systemInstruction":{"role":"user","parts":[{"text":"s"}]}}`, body)
	assert.Equal(t, "vertex/gemini-2.5-flash", p.Capabilities().ConnectionKey)
	assert.Len(t, p.Capabilities().Upstreams, 1, "clients of the format reach it unchanged")
}

func TestHostsOfVertex(t *testing.T) {
	t.Parallel()
	for args, says := range map[string]string{`{"project":"a/b"}`: "project", `{"location":"x.evil"}`: "location", `{"use_adc":true}`: "use_adc", `{"quota_project_id":"p\nq"}`: "quota_project_id"} {
		_, err := openOf(t, vertexAt(t, "http://127.0.0.1:1"), provider.Spec{Model: "vertex/gemini-2.5-flash", Args: args})
		require.ErrorContains(t, err, says)
	}
}
