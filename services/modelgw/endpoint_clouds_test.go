package modelgw_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/config"
	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/services/modelgw"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/providertest"
)

// A client of Gemini's format reaches Vertex AI unchanged, with an access token of the account in the place of its own.
func TestBytesReachVertexWithTheAccountsToken(t *testing.T) {
	t.Parallel()
	const answered = `{"candidates":[{"content":{"role":"model","parts":[{"text":"fine"}]},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":1,"candidatesTokenCount":2,"totalTokenCount":3}}`
	v := vendorWith(t, says(http.StatusOK, "application/json", answered))
	g := serveWeb(t, nil, func(c *modelgw.Config, _ *modelgw.Deps) {
		c.Google.Vertex.BaseURL, c.Google.Vertex.Project, c.Google.Vertex.Location = v.URL, "p", "global"
		c.Google.Vertex.Credentials = providertest.GoogleCredentials(t)
	})
	const body = `{ "contents":[{"role":"user","parts":[{"text":"q"}]}], "odd":1.0}`
	answer := g.post(t, geminiPath+"google/vertex/gemini-2.5-flash:generateContent", body)
	require.Equal(t, http.StatusOK, answer.StatusCode)
	assert.Equal(t, answered, read(t, answer))
	assert.Equal(t, body, string(waittest.For(t, v.body, "the body that reaches the vendor")))
	asked := waittest.For(t, v.asked, "the request that reaches the vendor")
	assert.Equal(t, "/v1beta1/projects/p/locations/global/publishers/google/models/gemini-2.5-flash:generateContent", asked.URL.Path)
	assert.Equal(t, "Bearer access-token-of-google", asked.Header.Get("Authorization"))
}

// An account whose credentials give no token says so, and sends nothing.
func TestAnIdentityWithoutATokenIsSaidToClients(t *testing.T) {
	t.Parallel()
	v := vendorWith(t, says(http.StatusOK, "application/json", `{}`))
	g := serveWeb(t, nil, func(c *modelgw.Config, _ *modelgw.Deps) {
		c.Google.Vertex.BaseURL, c.Google.Vertex.Project, c.Google.Vertex.Location = v.URL, "p", "global"
		c.Google.Vertex.Credentials = config.NewSecret(`{"type":"service_account","private_key":"the-private-key"}`)
	})
	answer := g.post(t, geminiPath+"google/vertex/gemini-2.5-flash:generateContent", `{"contents":[{"role":"user","parts":[{"text":"q"}]}]}`)
	said := read(t, answer)
	assert.Equal(t, http.StatusBadRequest, answer.StatusCode, said)
	assert.Contains(t, said, "google/vertex")
	assert.NotContains(t, said, "the-private-key")
	assert.Empty(t, v.asked)
}
