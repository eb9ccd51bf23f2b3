package anthropic

import (
	"net/http"
	"strings"

	dialect "github.com/evalfleet/evalfleet/pkg/dialect/anthropic"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

const versionHeader = "Anthropic-Version"

// newUpstream returns the account's address as a place for requests that come in the format already.
func (m *model) newUpstream() *provider.Upstream {
	return &provider.Upstream{
		Dialect: dialect.Name, Provider: Name, URL: m.endpoint + "/v1/messages", Model: string(m.name), HTTP: m.http, Authorize: m.authorize,
		Class: func(status int, body []byte) provider.Class { return class(status, dialect.DecodeError(body)) },
	}
}

// authorize sets what the account sends with such a request. The client's own version counts, and its features in preview beside those that are configured.
func (m *model) authorize(h http.Header) {
	h.Del("Authorization")
	h.Del("X-Api-Key")
	for name, values := range m.headers {
		if name != versionHeader || h.Get(versionHeader) == "" {
			h[name] = values
		}
	}
	if len(m.betas) > 0 {
		h.Set(betaHeader, strings.Join(append(h.Values(betaHeader), m.betas...), ","))
	}
}
