package anthropic

import (
	"net/http"
	"strings"
)

const versionHeader = "Anthropic-Version"

// authorize sets the account's credential and headers on such a request. The client's own version has precedence, and
// its preview features are added to the configured ones.
func (m *model) authorize(h http.Header) {
	h.Del("Authorization")
	h.Del("X-Api-Key")
	h.Del(azureKeyHeader)
	for name, values := range m.headers {
		if name != versionHeader || h.Get(versionHeader) == "" {
			h[name] = values
		}
	}
	if len(m.betas) > 0 {
		h.Set(betaHeader, strings.Join(append(h.Values(betaHeader), m.betas...), ","))
	}
}
