package anthropic

import (
	"cmp"
	"context"
	"net/http"
	"net/url"

	format "github.com/evalfleet/evalfleet/pkg/dialect/anthropic"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/exchange"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/googleauth"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/vertexaccess"
)

// vertexPrefix begins the names of models that Google's Vertex AI serves.
const vertexPrefix = "vertex/"

// VertexConfig sets up access to Anthropic's models on Google's Vertex AI.
type VertexConfig struct {
	// BaseURL is the address of the account `default`, with the version of the API at its end; default is Google's own
	// for the region.
	BaseURL string `yaml:"base_url" env:"ANTHROPIC_VERTEX_BASE_URL"`
	// VertexBaseURL is used if BaseURL is not set.
	VertexBaseURL string `yaml:"vertex_base_url" env:"VERTEX_ANTHROPIC_BASE_URL"`
	// AllowedBaseURLs are further addresses that requests with the account `default` may use, with the paths below
	// them.
	AllowedBaseURLs []string `yaml:"allowed_base_urls" env:"EVALFLEET_MODELGW_ANTHROPIC_VERTEX_ALLOWED_BASE_URLS"`
	// Project is the project of Google Cloud.
	Project string `yaml:"project" env:"ANTHROPIC_VERTEX_PROJECT_ID"`
	// CloudProject is used if no project is set.
	CloudProject string `yaml:"cloud_project" env:"GOOGLE_CLOUD_PROJECT"`
	// Region is where the models are served, such as `us-east5` or `global`.
	Region string `yaml:"region" env:"ANTHROPIC_VERTEX_REGION"`
	// MLRegion is used if no region is set: clients of this API know both variables.
	MLRegion           string `yaml:"ml_region" env:"CLOUD_ML_REGION"`
	googleauth.Default `yaml:",inline"`
	// Accounts are further accounts by name.
	Accounts map[string]vertexaccess.Account `yaml:"accounts"`
}

// Validate implements config.Validator.
func (c *VertexConfig) Validate() error { return vertexaccess.Check(c.Accounts) }

// all are the accounts.
func (c VertexConfig) all(client *http.Client) *vertexaccess.Accounts {
	named := provider.ByName(c.Accounts, vertexaccess.Account{
		BaseURL: cmp.Or(c.BaseURL, c.VertexBaseURL), AllowedBaseURLs: c.AllowedBaseURLs, Project: cmp.Or(c.Project, c.CloudProject),
		Location: cmp.Or(c.Region, c.MLRegion), Account: c.Account(),
	})
	return vertexaccess.New(vertexaccess.API{
		Provider: Name + "/vertex", Version: "/v1",
		Hint: "set ANTHROPIC_VERTEX_PROJECT_ID and ANTHROPIC_VERTEX_REGION, or project and region below anthropic.vertex in the configuration of modelgw",
	}, named, nil, client)
}

// openVertex gives a model access to Vertex AI.
func (h *host) openVertex(m *model, spec provider.Spec) error {
	access, err := h.vertex.Open(spec, "", "")
	if err != nil {
		return err
	}
	m.headers, m.server = http.Header{}, access.Endpoint+access.Parent
	m.door = &vertexDoor{
		exchange: &exchange.Exchange{Codec: format.Codec{}, HTTP: access.HTTP, Provider: Name},
		models:   m.server + "/publishers/anthropic/models/", name: url.PathEscape(string(m.name)),
	}
	return nil
}

// vertexDoor is the API of Vertex AI: https://platform.claude.com/docs/en/build-with-claude/claude-on-vertex-ai. What
// counts tokens is a model of its own there.
type vertexDoor struct {
	exchange     *exchange.Exchange
	models, name string
}

func (d *vertexDoor) enter(context.Context) (*entry, error) {
	return &entry{Exchange: d.exchange, count: d.models + "count-tokens:rawPredict", messages: func(stream bool) string {
		if stream {
			return d.models + d.name + ":streamRawPredict"
		}
		return d.models + d.name + ":rawPredict"
	}}, nil
}
