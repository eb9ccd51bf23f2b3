package modelgw_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/config"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/services/modelgw"
)

// Lists are without models that their vendor has shut down. A request may name one: its vendor says what becomes of it.
func TestARetiredModelIsNotListed(t *testing.T) {
	t.Parallel()
	const retired, current = "anthropic/claude-sonnet-4-5", "anthropic/claude-sonnet-5-5"
	g := serveWeb(t, nil, func(c *modelgw.Config, _ *modelgw.Deps) { c.Anthropic.APIKey = config.NewSecret("k") })

	answer, err := g.models.ListModels(t.Context(), &modelv1.ListModelsRequest{Provider: "anthropic"})
	require.NoError(t, err)
	var names []string
	for _, m := range answer.GetModels() {
		names = append(names, m.GetShortName())
	}
	assert.Contains(t, names, current)
	assert.NotContains(t, names, retired)

	list := read(t, g.do(t.Context(), t, http.MethodGet, "/v1/models", ""))
	assert.Contains(t, list, `"`+current+`"`)
	assert.NotContains(t, list, `"`+retired+`"`)

	assert.Contains(t, modelgw.Models(), current)
	assert.NotContains(t, modelgw.Models(), retired)

	_, err = g.models.Generate(t.Context(), &modelv1.GenerateRequest{Parent: project, Model: retired, ValidateOnly: true})
	require.NoError(t, err)
}

// A list shows models whose window and price are known.
func TestWhatIsListedIsKnown(t *testing.T) {
	t.Parallel()
	g := serveWeb(t, nil)
	for _, vendor := range []string{"anthropic", "google", "grok", "mistral", "openai"} {
		answer, err := g.models.ListModels(t.Context(), &modelv1.ListModelsRequest{Provider: vendor})
		require.NoError(t, err)
		require.NotEmpty(t, answer.GetModels(), vendor)
		for _, m := range answer.GetModels() {
			assert.NotZero(t, m.GetContextTokens(), m.GetShortName())
			assert.NotNil(t, m.GetPrices(), m.GetShortName())
		}
	}
}

// An address with a path is none of xAI's, whose API is gRPC, but may be that of another service: only calls of the
// account fail.
func TestAnAccountThatIsConfiguredWronglyIsListed(t *testing.T) {
	t.Parallel()
	g := serveWeb(t, nil, func(c *modelgw.Config, _ *modelgw.Deps) {
		c.Grok.APIKey, c.Grok.GrokBaseURL = config.NewSecret("k"), "https://api.x.ai/v1"
	})
	answer, err := g.models.ListModels(t.Context(), &modelv1.ListModelsRequest{Provider: "grok"})
	require.NoError(t, err)
	assert.NotEmpty(t, answer.GetModels())
	_, err = g.models.GetModel(t.Context(), &modelv1.GetModelRequest{Name: "providers/grok/models/grok-4"})
	require.ErrorContains(t, err, "host and port of a gRPC server")
}
