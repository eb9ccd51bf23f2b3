// Package bedrock is Amazon Bedrock's Converse API, for models of all vendors: accounts, regions, names of models and
// their quirks. The format is pkg/dialect/bedrockconverse; credentials and signatures are provider/awsauth.
package bedrock

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync/atomic"

	"github.com/evalfleet/evalfleet/pkg/config"
	format "github.com/evalfleet/evalfleet/pkg/dialect/bedrockconverse"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonread"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/awsauth"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/claude"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/transport"
)

// Name is the provider's name.
const Name = "bedrock"

// service is the name of Bedrock in signatures.
const service = "bedrock"

// vendor is the address of Bedrock in a region.
func vendor(region string) string { return "https://bedrock-runtime." + awsauth.Domain(region) }

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
	Accounts map[string]Account `yaml:"accounts"`
}

// Account is access to Bedrock as it is configured.
type Account struct {
	// APIKey is a Bedrock API key, which is sent in the place of a signature.
	APIKey config.Secret `yaml:"api_key"`
	// BaseURL is where the API is; empty is Bedrock's own address in the region.
	BaseURL string `yaml:"base_url"`
	// AllowedBaseURLs are further addresses that a request may use: exactly these, or a plain path below them.
	AllowedBaseURLs []string `yaml:"allowed_base_urls"`
	awsauth.Account `yaml:",inline"`
}

// isReachable reports whether it is known where requests go: in a region, which a profile may have, or for a key at an
// address. Whether AWS's default chain gives credentials is known once they are needed.
func (a *Account) isReachable(region, address string) bool {
	switch {
	case region != "":
		return true
	case a.APIKey.IsZero():
		return a.Profile != ""
	default:
		return a.BaseURL != "" || address != ""
	}
}

// Validate implements config.Validator. The account `default`, whose variables may be meant for other programs, is
// checked when it is used.
func (c *Config) Validate() error {
	for _, name := range slices.Sorted(maps.Keys(c.Accounts)) {
		account := c.Accounts[name]
		if err := account.Check(); err != nil {
			return fmt.Errorf("accounts.%s: %w", name, err)
		}
	}
	return nil
}

// models are the listed names; requests may use any other too.
var models = []string{
	"amazon.nova-2-lite-v1:0", "amazon.nova-lite-v1:0", "amazon.nova-micro-v1:0", "amazon.nova-premier-v1:0", "amazon.nova-pro-v1:0",
	"anthropic.claude-haiku-4-5-20251001-v1:0", "anthropic.claude-opus-4-1-20250805-v1:0", "anthropic.claude-sonnet-4-5-20250929-v1:0",
	"meta.llama3-3-70b-instruct-v1:0", "mistral.mistral-large-2407-v1:0", "openai.gpt-oss-120b-1:0", "openai.gpt-oss-20b-1:0",
}

// host is shared by instances.
type host struct {
	accounts map[string]*access
	http     *http.Client
}

// access is an account, with the source of its credentials.
type access struct {
	Account
	signer *awsauth.Signer
	// bearer is the client for requests with the API key.
	bearer awsauth.Client
}

// Kind returns the provider. The function that is returned with it closes idle connections.
func Kind(c Config) (provider.Kind, func() error) {
	h := &host{accounts: map[string]*access{}, http: transport.NewClient()}
	named := map[string]Account{}
	maps.Copy(named, c.Accounts)
	named[provider.DefaultAccount] = Account{APIKey: c.APIKey, BaseURL: c.BaseURL, AllowedBaseURLs: c.AllowedBaseURLs, Account: c.Account()}
	var listed []*modelv1.Account
	for _, name := range slices.Sorted(maps.Keys(named)) {
		account := named[name]
		owner := awsauth.Owner{Provider: Name, Account: name, Hint: keyHint}
		bearer := awsauth.Client{HTTP: transport.RedactSecrets(h.http, account.APIKey), Codec: transport.RedactEvents(account.APIKey)}
		source := awsauth.NewSource(owner, account.Account, h.http)
		h.accounts[name] = &access{Account: account, signer: awsauth.NewSigner(source, service), bearer: bearer}
		listed = append(listed, owner.Listed(&account.Account, account.BaseURL, vendor, account.isReachable(account.Region, "")))
	}
	kind := provider.Kind{
		Name:        Name,
		Description: "Amazon Bedrock, with the models of many vendors",
		Dialect:     format.Name,
		Models:      models,
		Open:        h.open,
		Accounts:    listed,
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
	name    name
	family  family
	claude  claude.Generation
	args    arguments
	account *access
	// asked is the address that the reference of the model asks for; empty is the account's.
	asked string
	// noStream is set once the account's rights have not sufficed for a stream.
	noStream atomic.Bool
}

func (h *host) open(spec provider.Spec) (provider.Provider, error) {
	m := &model{name: name(spec.Model), asked: spec.BaseURL}
	m.family, m.claude = m.name.family(), m.name.claude()
	if err := spec.Arguments(&m.args); err != nil {
		return nil, err
	}
	if err := awsauth.CheckRegion(m.args.RegionName); err != nil {
		return nil, provider.InvalidArguments(fmt.Errorf("region_name: %w", err))
	}
	account, known := h.accounts[spec.Account]
	if !known {
		return nil, provider.NoSuchAccount(Name, spec.Account, slices.Sorted(maps.Keys(h.accounts)))
	}
	m.account = account
	if _, err := m.endpoint(m.region()); err != nil {
		return nil, err
	}
	if err := account.Check(); err != nil {
		return nil, rpcerr.ProviderNotConfigured(Name, spec.Account, "%s's account %q cannot be used: %w", Name, spec.Account, err)
	}
	if !account.isReachable(m.region(), m.asked) {
		return nil, rpcerr.ProviderNotConfigured(Name, spec.Account, "%s's account %q has neither a region nor credentials: %s", Name, spec.Account, keyHint)
	}
	return m, nil
}

// region is the configured region; empty leaves it to the profile.
func (m *model) region() string {
	if m.args.RegionName != "" {
		return m.args.RegionName
	}
	return m.account.Region
}

// endpoint is the address of the API in a region.
func (m *model) endpoint(region string) (string, error) {
	account := provider.Account{BaseURL: m.account.BaseURL, AllowedBaseURLs: m.account.AllowedBaseURLs}
	return account.Endpoint(m.asked, vendor(region))
}

// path is the path of an operation on the model.
func (m *model) path(operation string) string {
	return "/model/" + awsauth.Segment(string(m.name)) + "/" + operation
}

// unused are the model arguments that are set and not used.
func (a *arguments) unused() (all []provider.Unsent) {
	for _, argument := range []struct {
		name  string
		value json.RawMessage
	}{{"read_timeout", a.ReadTimeout}, {"connect_timeout", a.ConnectTimeout}} {
		if jsonread.IsSet(argument.value) {
			all = append(all, provider.Unsent{Option: provider.ModelArgument + argument.name, Why: "whose attempts are bounded by attempt_timeout and stream_idle_timeout"})
		}
	}
	return all
}

// Close implements provider.Provider.
func (m *model) Close() error { return nil }
