package google

import (
	"cmp"
	"errors"
	"net/http"
	"net/url"

	"github.com/evalfleet/evalfleet/pkg/config"
	format "github.com/evalfleet/evalfleet/pkg/dialect/gemini"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/exchange"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/googleauth"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/vertexaccess"
)

const (
	// vertex precedes the names of models that Vertex AI serves.
	vertex = "vertex"
	// vertexVersion is the default version of its API.
	vertexVersion = "v1beta1"
)

// VertexConfig sets up access to Google's models on Vertex AI: with a project, a location and credentials of Google, or
// with a key in express mode.
type VertexConfig struct {
	// Always uses Vertex AI for all models of the provider, also for those without `vertex/` in their names.
	Always bool `yaml:"always" env:"GOOGLE_GENAI_USE_VERTEXAI"`
	// APIKey is the key of the account `default` in express mode, which needs no project, no location and no other
	// credentials.
	APIKey config.Secret `yaml:"api_key" env:"VERTEX_API_KEY"`
	// BaseURL is the address of the account `default`, without the version of the API; default is Google's own for the
	// location.
	BaseURL string `yaml:"base_url" env:"GOOGLE_VERTEX_BASE_URL"`
	// VertexBaseURL is used if BaseURL is not set.
	VertexBaseURL string `yaml:"vertex_base_url" env:"VERTEX_BASE_URL"`
	// AllowedBaseURLs are further addresses that requests with the account `default` may use, with the paths below
	// them.
	AllowedBaseURLs []string `yaml:"allowed_base_urls" env:"EVALFLEET_MODELGW_GOOGLE_VERTEX_ALLOWED_BASE_URLS"`
	// Project is the project of Google Cloud.
	Project string `yaml:"project" env:"GOOGLE_CLOUD_PROJECT"`
	// Location is where models are served, such as `us-central1` or `global`.
	Location           string `yaml:"location" env:"GOOGLE_CLOUD_LOCATION"`
	googleauth.Default `yaml:",inline"`
	// Accounts are further accounts by name.
	Accounts map[string]VertexAccount `yaml:"accounts"`
}

var errVertexADC = errors.New("use_adc and scopes are for Google's own API; Vertex AI always takes credentials of Google, or the key of express mode")

// VertexAccount is a further account.
type VertexAccount struct {
	// APIKey is the key of express mode.
	APIKey               config.Secret `yaml:"api_key"`
	vertexaccess.Account `yaml:",inline"`
}

// Validate implements config.Validator.
func (c *VertexConfig) Validate() error {
	named, _ := c.further()
	return vertexaccess.Check(named)
}

// further are the further accounts, and their keys.
func (c *VertexConfig) further() (map[string]vertexaccess.Account, map[string]config.Secret) {
	named, keys := map[string]vertexaccess.Account{}, map[string]config.Secret{}
	for name, account := range c.Accounts {
		named[name], keys[name] = account.Account, account.APIKey
	}
	return named, keys
}

// all are the accounts.
func (c *VertexConfig) all(client *http.Client) *vertexaccess.Accounts {
	named, keys := c.further()
	keys[provider.DefaultAccount] = c.APIKey
	named[provider.DefaultAccount] = vertexaccess.Account{
		BaseURL: cmp.Or(c.BaseURL, c.VertexBaseURL), AllowedBaseURLs: c.AllowedBaseURLs, Project: c.Project, Location: c.Location, Account: c.Account(),
	}
	return vertexaccess.New(vertexaccess.API{
		Provider: Name + "/" + vertex,
		Hint:     "set GOOGLE_CLOUD_PROJECT and GOOGLE_CLOUD_LOCATION, or VERTEX_API_KEY, or the same below google.vertex in the configuration of modelgw",
	}, named, keys, client)
}

// openVertex gives a model access to Vertex AI:
// https://cloud.google.com/vertex-ai/generative-ai/docs/model-reference/inference.
func (h *host) openVertex(m *model, spec provider.Spec) error {
	if m.args.UseADC != nil && *m.args.UseADC || m.args.Scopes != nil {
		return provider.InvalidArguments(errVertexADC)
	}
	access, err := h.vertex.Open(spec, m.args.Project, m.args.Location)
	if err != nil {
		return err
	}
	if !access.Key.IsZero() {
		m.header.Set("X-Goog-Api-Key", access.Key.Reveal())
	}
	if project := cmp.Or(m.args.QuotaProjectID, h.QuotaProject); project != "" {
		m.header.Set("X-Goog-User-Project", project)
	}
	m.base = access.Endpoint + "/" + cmp.Or(m.args.APIVersion, vertexVersion) + access.Parent + "/publishers/google/models/" + url.PathEscape(string(m.name))
	m.exchange = &exchange.Exchange{Codec: format.Codec{}, HTTP: access.HTTP, Provider: Name, Quirks: quirks}
	return nil
}

// fullName is the model's name with its service, which has quotas of its own.
func (m *model) fullName() string {
	if m.onVertex {
		return vertex + "/" + string(m.name)
	}
	return string(m.name)
}
