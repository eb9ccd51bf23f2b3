// Package bedrock is Amazon Bedrock's Converse API, for models of all vendors: regions, names of models and
// their quirks. The format is pkg/dialect/bedrockconverse; accounts are provider/bedrockaccess.
package bedrock

import (
	"encoding/json"
	"fmt"
	"net/http"
	"sync/atomic"

	"github.com/evalfleet/evalfleet/pkg/config"
	format "github.com/evalfleet/evalfleet/pkg/dialect/bedrockconverse"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/awsauth"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/bedrockaccess"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/claude"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/transport"
)

// Name is the provider's name.
const Name = "bedrock"

const keyHint = "set AWS_REGION and credentials of AWS (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE, or a role), or AWS_BEARER_TOKEN_BEDROCK, " +
	"or the same in the configuration of modelgw"

// Config sets the provider up.
type Config struct {
	// APIKey is a Bedrock API key for the account `default`; it is sent in the place of a signature.
	APIKey config.Secret `yaml:"api_key" env:"AWS_BEARER_TOKEN_BEDROCK"`
	// BaseURL is the address of the account `default`; default is Bedrock's own in the region.
	BaseURL string `yaml:"base_url" env:"BEDROCK_BASE_URL"`
	// AllowedBaseURLs are further addresses that requests with the account `default` may use, with the paths below
	// them.
	AllowedBaseURLs []string `yaml:"allowed_base_urls" env:"EVALFLEET_MODELGW_BEDROCK_ALLOWED_BASE_URLS"`
	awsauth.Default `yaml:",inline"`
	// Accounts are further accounts by name.
	Accounts map[string]bedrockaccess.Account `yaml:"accounts"`
}

// Validate implements config.Validator. The account `default`, whose variables may be meant for other programs, is
// checked when it is used.
func (c *Config) Validate() error { return bedrockaccess.Check(c.Accounts) }

// models are the listed names; requests may use any other too.
var models = []string{
	"amazon.nova-2-lite-v1:0", "amazon.nova-lite-v1:0", "amazon.nova-micro-v1:0", "amazon.nova-premier-v1:0", "amazon.nova-pro-v1:0",
	"anthropic.claude-haiku-4-5-20251001-v1:0", "anthropic.claude-opus-4-1-20250805-v1:0", "anthropic.claude-sonnet-4-5-20250929-v1:0",
	"meta.llama3-3-70b-instruct-v1:0", "mistral.mistral-large-2407-v1:0", "openai.gpt-oss-120b-1:0", "openai.gpt-oss-20b-1:0",
}

// host is shared by instances.
type host struct {
	accounts *bedrockaccess.Accounts
	http     *http.Client
}

// Kind returns the provider. The function that is returned with it closes idle connections.
func Kind(c Config) (provider.Kind, func() error) {
	named := provider.ByName(c.Accounts, bedrockaccess.Account{APIKey: c.APIKey, BaseURL: c.BaseURL, AllowedBaseURLs: c.AllowedBaseURLs, Account: c.Account()})
	h := &host{http: transport.NewClient()}
	h.accounts = bedrockaccess.New(bedrockaccess.API{Provider: Name, Address: bedrockaccess.Runtime, Hint: keyHint}, named, h.http)
	kind := provider.Kind{
		Name:        Name,
		Description: "Amazon Bedrock, with the models of many vendors",
		Dialect:     format.Name,
		Models:      models,
		Open:        h.open,
		Accounts:    h.accounts.Listed(),
	}
	return kind, func() error {
		h.http.CloseIdleConnections()
		return nil
	}
}

// arguments are the model arguments.
type arguments struct {
	// RegionName is the region of AWS; default is the account's.
	RegionName string `json:"region_name"`
	// Streaming streams every answer; by default one that is watched.
	Streaming *bool `json:"streaming"`
	// ReadTimeout and ConnectTimeout are known from inspect_ai, and not used: the gateway bounds attempts.
	ReadTimeout    json.RawMessage `json:"read_timeout"`
	ConnectTimeout json.RawMessage `json:"connect_timeout"`
}

// model is one opened model.
type model struct {
	name   name
	family family
	claude claude.Generation
	args   arguments
	access *bedrockaccess.Access
	// noStream is set once the account's rights have not sufficed for a stream.
	noStream atomic.Bool
	// countsNone is set once the server has not counted tokens of the model.
	countsNone atomic.Bool
}

func (h *host) open(spec provider.Spec) (provider.Provider, error) {
	m := &model{name: name(spec.Model)}
	m.family, m.claude = m.name.family(), m.name.claude()
	if err := spec.Arguments(&m.args); err != nil {
		return nil, err
	}
	if err := awsauth.CheckRegion(m.args.RegionName); err != nil {
		return nil, provider.InvalidArguments(fmt.Errorf("region_name: %w", err))
	}
	var err error
	if m.access, err = h.accounts.Open(spec, m.args.RegionName); err != nil {
		return nil, err
	}
	return m, nil
}

// Close implements provider.Provider.
func (m *model) Close() error { return nil }
