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

// vertexAt is a configuration of Vertex AI at an address.
func vertexAt(t testing.TB, address string) anthropic.Config {
	t.Helper()
	c := anthropic.Config{
		APIKey: config.NewSecret("key-of-anthropic"), Vertex: anthropic.VertexConfig{BaseURL: address + "/v1", Project: "my-project", Region: "us-east5"},
	}
	c.Vertex.Credentials = providertest.GoogleCredentials(t)
	return c
}

func TestSuiteOnVertex(t *testing.T) {
	t.Parallel()
	providertest.Run(t, providertest.Harness{New: func(t *testing.T, answers ...providertest.Answer) provider.Provider {
		p, err := openModel(t, vertexAt(t, providertest.MessageServer(t, answers...)), provider.Spec{Model: "vertex/claude-sonnet-4-5@20250929"})
		require.NoError(t, err)
		return p
	}})
}

// No option of a configuration is passed over without a word.
func TestEveryOptionIsSentToVertexOrSaidNotToBe(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"claude-3-haiku@20240307", "claude-sonnet-4-5@20250929", "claude-opus-4-8", "claude-sonnet-5-5"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			providertest.Options(t, func(t *testing.T, root string) provider.Provider {
				p, err := openModel(t, vertexAt(t, root), provider.Spec{Model: "vertex/" + name})
				require.NoError(t, err)
				return p
			})
		})
	}
}

// A request is in the form of Vertex AI, with what it lacks left out, and has an access token of the account.
func TestARequestToVertex(t *testing.T) {
	t.Parallel()
	var got []*http.Request
	var bodies []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		raw, _ := io.ReadAll(r.Body)
		got, bodies = append(got, r), append(bodies, string(raw))
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"type":"message","role":"assistant","model":"claude","content":[{"type":"text","text":"fine"}],"stop_reason":"end_turn","input_tokens":3}`)
	}))
	t.Cleanup(server.Close)
	p, err := openModel(t, vertexAt(t, server.URL), provider.Spec{Model: "vertex/claude-sonnet-4-5@20250929", Args: `{"streaming":false,"betas":["a-beta"]}`})
	require.NoError(t, err)
	request := &provider.Request{Messages: []*modelv1.ChatMessage{chat.User("q")}}
	_, err = p.Generate(t.Context(), request)
	require.NoError(t, err)
	tokens, err := p.(provider.TokenCounter).CountTokens(t.Context(), request)
	require.NoError(t, err)
	assert.Equal(t, int64(3), tokens)
	require.Len(t, got, 2)
	const models = "/v1/projects/my-project/locations/us-east5/publishers/anthropic/models/"
	assert.Equal(t, []string{models + "claude-sonnet-4-5@20250929:rawPredict", models + "count-tokens:rawPredict"}, []string{got[0].URL.Path, got[1].URL.Path})
	for _, r := range got {
		assert.Equal(t, "Bearer access-token-of-google", r.Header.Get("Authorization"))
		assert.Equal(t, []string{"", "", "a-beta"}, []string{r.Header.Get("X-Api-Key"), r.Header.Get("Anthropic-Version"), r.Header.Get("Anthropic-Beta")})
	}
	assert.JSONEq(t, `{"stream":false,"messages":[{"role":"user","content":"q"}],"anthropic_version":"vertex-2023-10-16"}`, bodies[0])
	assert.JSONEq(t, `{"model":"claude-sonnet-4-5@20250929","messages":[{"role":"user","content":"q"}],"anthropic_version":"vertex-2023-10-16"}`, bodies[1])
	_, err = p.Generate(t.Context(), &provider.Request{Messages: request.Messages, Progress: func() {}})
	require.NoError(t, err)
	assert.Equal(t, "vertex/claude-sonnet-4-5@20250929", p.Capabilities().ConnectionKey)
	assert.Empty(t, p.Capabilities().Upstreams, "a client's request is not in the form of Vertex AI")
}
