package modelgw_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/services/modelgw"
)

// Clients ask for models under names of their own, which a configuration maps to models.
func TestAliases(t *testing.T) {
	t.Parallel()
	v := vendorWith(t, says(http.StatusOK, "application/json", whole))
	g := serveWeb(t, v, withScript(t, "s", `{"default": {"text": "scripted"}}`), func(c *modelgw.Config, _ *modelgw.Deps) {
		c.Endpoints.Aliases = map[string]string{"gpt-4o": "openai/gpt-4o", "claude-*": "mockllm/model", "claude-haiku-*": "mockllm/s"}
	})
	body := `{"model":"gpt-4o","messages":[{"role":"user","content":"q"}]}`
	read(t, g.post(t, chatPath, body))
	assert.Equal(t, body, string(waittest.For(t, v.body, "the body that reaches the vendor")))

	for model, want := range map[string]bool{"claude-haiku-4-5": true, "claude-sonnet-5": false} {
		said := read(t, g.post(t, messagesPath, `{"model":"`+model+`","max_tokens":5,"messages":[{"role":"user","content":"q"}]}`))
		assert.Contains(t, said, `"model":"`+model+`"`, "the answer names the model as the client did")
		assert.Equal(t, want, strings.Contains(said, "scripted"), said)
	}
	assert.Contains(t, read(t, g.post(t, geminiPath+"claude-haiku-1:generateContent", `{"contents":[{"parts":[{"text":"q"}]}]}`)), "scripted")

	list := read(t, g.do(t.Context(), t, http.MethodGet, "/v1/models", ""))
	assert.Contains(t, list, `{"id":"gpt-4o","object":"model","created":1715558400,"owned_by":"openai"}`)
	assert.NotContains(t, list, "claude-")
	assert.Contains(t, read(t, g.do(t.Context(), t, http.MethodGet, "/v1/models/claude-x", "")), `"id":"claude-x"`)
	assert.Equal(t, http.StatusNotFound, g.post(t, chatPath, `{"model":"gpt-4","messages":[]}`).StatusCode)
}

func TestNamesInTheSettingsOfEndpointsAreKnown(t *testing.T) {
	t.Parallel()
	c := modelgw.Config{}
	c.SetDefaults()
	c.Endpoints.SetDefaults()
	c.Endpoints.Aliases = map[string]string{"fast": "gpt-4o"}
	assert.ErrorContains(t, c.Endpoints.Validate(), `aliases.fast: "gpt-4o" is no model; write <provider>/<model>`)
	c.Endpoints.Aliases = map[string]string{"*-fast": "openai/gpt-4o", "g*": "openai/gpt-4o", "*": "openai/gpt-4o"}
	assert.EqualError(t, c.Endpoints.Validate(), "aliases.*-fast: a star stands for any rest of a name, so that it can only be at the end")
	c.Endpoints.Aliases, c.Endpoints.LeaveOut = nil, []string{"temperature", "num_choices"}
	assert.ErrorContains(t, c.Endpoints.Validate(), `leave_out: "num_choices" is none of temperature, top_p`)
	c.Endpoints.LeaveOut = nil
	c.Endpoints.Aliases = map[string]string{"fast": "opnai/gpt-4o", "slow": "groq/llama", "own": "openai-api/ours/m"}
	err := c.Validate()
	require.ErrorContains(t, err, `endpoints.aliases.fast: unknown provider "opnai" of "opnai/gpt-4o"`)
	assert.Equal(t, 1, strings.Count(err.Error(), "endpoints.aliases."), "providers that are not configured are known")
}
