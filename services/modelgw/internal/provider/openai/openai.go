// Package openai is OpenAI's API, the same on Azure and Amazon Bedrock, or a server that behaves like it at another
// address: account, names of models and their quirks. The formats are pkg/dialect/openaichat and
// pkg/dialect/openairesponses; which of the two a call has depends on the account, the model and the configuration.
// Batches on Azure are not built.
package openai

import (
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/evalfleet/evalfleet/pkg/config"
	"github.com/evalfleet/evalfleet/pkg/dialect/openaichat"
	"github.com/evalfleet/evalfleet/pkg/dialect/openairesponses"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/bedrockaccess"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/chatapi"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/exchange"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/responsesapi"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/transport"
)

// Name is the provider's name.
const Name = "openai"

// vendor is OpenAI's own address.
const (
	vendorHost = "api.openai.com"
	vendor     = "https://" + vendorHost + "/v1"
)

func keyHint(string) string { return "set OPENAI_API_KEY, or api_key in the configuration of modelgw" }

// Config sets the provider up.
type Config struct {
	// APIKey is the key of the account `default`.
	APIKey config.Secret `yaml:"api_key" env:"OPENAI_API_KEY"`
	// BaseURL is the address of the account `default`; default is OpenAI's own.
	BaseURL string `yaml:"base_url" env:"OPENAI_BASE_URL"`
	// AllowedBaseURLs are further addresses that requests with the account `default` may use, with the paths below
	// them.
	AllowedBaseURLs []string `yaml:"allowed_base_urls" env:"EVALFLEET_MODELGW_OPENAI_ALLOWED_BASE_URLS"`
	// KeyOptional allows requests without a key, for servers that want none.
	KeyOptional bool `yaml:"key_optional"`
	// Keys are further credentials of the account `default`, among which its conversations are distributed.
	Keys []provider.Key `yaml:"keys"`
	// Organization is sent with each request, if it is set.
	Organization string `yaml:"organization" env:"OPENAI_ORG_ID"`
	// Project is sent with each request, if it is set.
	Project string `yaml:"project" env:"OPENAI_PROJECT_ID"`
	// ResponsesAPI selects the API for the models of the account `default`: true is the Responses API for all, false is
	// chat completions, except at OpenAI's own address for models that answer in the background alone. If it is
	// omitted, a model's name decides at OpenAI's own address, and at any other it is chat completions.
	ResponsesAPI *bool `yaml:"responses_api"`
	// Accounts are further accounts by name.
	Accounts map[string]Account `yaml:"accounts"`
	// Azure are OpenAI's models on Azure: models `openai/azure/<deployment>`.
	Azure AzureConfig `yaml:"azure"`
	// Bedrock are OpenAI's models on Amazon Bedrock: models `openai/bedrock/<model>`.
	Bedrock BedrockConfig `yaml:"bedrock"`
}

// Account is a further account.
type Account struct {
	provider.Account `yaml:",inline"`
	// ResponsesAPI selects the API for the account's models: true is the Responses API for all, false is chat
	// completions, except at OpenAI's own address for models that answer in the background alone. If it is omitted, a
	// model's name decides at OpenAI's own address, and at any other it is chat completions.
	ResponsesAPI *bool `yaml:"responses_api"`
}

// models are the listed names; requests may use any other too.
var models = []string{"gpt-4", "gpt-4.1", "gpt-4.1-mini", "gpt-4o", "gpt-4o-mini", "gpt-5", "gpt-5-mini", "o3", "o4-mini"}

// host is shared by instances.
type host struct {
	vendor   string
	accounts map[string]Account
	plain    provider.Accounts // accounts without OpenAI's own settings
	azure    azure
	bedrock  *bedrockaccess.Accounts
	headers  map[string]string
	http     *http.Client
	// byName makes the names of models decide about their API at any address; recorded cases have it so.
	byName bool
	// pollEvery is the time between two questions for an answer that the server makes in the background.
	pollEvery time.Duration
}

// Kind returns the provider. The function that is returned with it closes idle connections.
func Kind(c Config) (provider.Kind, func() error) { return kindAt(c, vendor, false) }

// kindAt is Kind with the vendor at another address.
func kindAt(c Config, vendor string, byName bool) (provider.Kind, func() error) {
	return kindPolling(c, vendor, byName, pollEvery)
}

// kindPolling is kindAt with another time between questions for an answer in the background.
func kindPolling(c Config, vendor string, byName bool, every time.Duration) (provider.Kind, func() error) {
	h := &host{vendor: vendor, byName: byName, pollEvery: every, headers: map[string]string{}, http: transport.NewClient()}
	h.azure, h.bedrock = c.Azure.all(h.http), c.Bedrock.all(h.http)
	h.accounts = provider.ByName(c.Accounts, Account{ResponsesAPI: c.ResponsesAPI, Account: provider.Account{
		APIKey: c.APIKey, BaseURL: c.BaseURL, AllowedBaseURLs: c.AllowedBaseURLs, KeyOptional: c.KeyOptional, Keys: c.Keys,
	}})
	h.plain = provider.Accounts{Provider: Name, Named: map[string]provider.Account{}, Vendor: vendor, KeyHint: keyHint}
	for name, account := range h.accounts {
		h.plain.Named[name] = account.Account
	}
	for name, value := range map[string]string{"OpenAI-Organization": c.Organization, "OpenAI-Project": c.Project} {
		if value != "" {
			h.headers[name] = value
		}
	}
	kind := provider.Kind{
		Name:        Name,
		Description: "OpenAI, also on Azure and Bedrock, and servers that behave like it",
		Dialect:     openaichat.Name,
		Models:      models,
		Open:        h.open,
		Accounts:    h.plain.Usable(),
		Clouds:      slices.Concat(h.azure.accounts.Deployed(), provider.InCloud("bedrock", h.bedrock.Listed())),
	}
	return kind, func() error {
		h.http.CloseIdleConnections()
		return nil
	}
}

// arguments are the model arguments.
type arguments struct {
	// ResponsesAPI selects the API: the Responses API, or chat completions.
	ResponsesAPI *bool `json:"responses_api"`
	// Streaming reports whether requests are streamed; the default is when the answer is watched.
	Streaming *bool `json:"streaming"`
	// ServiceTier, SafetyIdentifier, PromptCacheKey and PromptCacheRetention are sent unchanged.
	ServiceTier          string `json:"service_tier"`
	SafetyIdentifier     string `json:"safety_identifier"`
	PromptCacheKey       string `json:"prompt_cache_key"`
	PromptCacheRetention string `json:"prompt_cache_retention"`
	// ResponsesStore makes the server of the Responses API store answers.
	ResponsesStore *bool `json:"responses_store"`
	// ResponsesPhase states to the Responses API which messages of the assistant are comments before calls.
	ResponsesPhase *bool `json:"responses_phase"`
	// APIVersion is the version of Azure's API.
	APIVersion string `json:"api_version"`
	// AWSRegion is the region of models on Bedrock; default is the account's.
	AWSRegion string `json:"aws_region"`
	// Background makes the server answer in the background, and asks for the answer until it is there. Default is true
	// for models of deep research, the pro models, and the reasoning mode `pro`.
	Background *bool `json:"background"`
}

// model is one opened model.
type model struct {
	name name
	// served is the name by which the server knows the model.
	served string
	args   arguments
	client *chatapi.Client
	// responses makes attempts with the Responses API, at responsesURL.
	responses    exchange.Exchange
	responsesURL string
	unverified   *unverified
	// countsNone is set once the server has not known where tokens are counted.
	countsNone *atomic.Bool
	pollEvery  time.Duration
	// listed means that the API lists its models by the names that calls use.
	listed bool
	// atVendor means that requests go to OpenAI's own address, and byName that a model's name decides about its API.
	atVendor, byName bool
	// forTools means that the Responses API is used for the tools of a call alone.
	forTools bool
	// noServers means that the API calls no servers of tools.
	noServers bool
	// sealer is who reads the seals of the Responses API: the organization or, on Azure, the resource of the account.
	sealer string
	// chatSealer is who reads the seals of chat completions. OpenAI's have none, and read none of other servers.
	chatSealer string
	// traits is traitsOf, made once, since each call asks for them.
	traits func() traits
	// upstreams are the targets for unchanged requests: of the API that is set for the model, or else of both at
	// OpenAI's own address, and chat completions at any other.
	upstreams []*provider.Upstream
	// batch is the batch API; nil on Azure.
	batch *provider.BatchSupport
}

func (h *host) open(spec provider.Spec) (provider.Provider, error) {
	m := &model{
		name: name{id: spec.Model}, served: spec.Model, unverified: &unverified{}, countsNone: &atomic.Bool{},
		pollEvery: h.pollEvery,
	}
	m.traits = sync.OnceValue(m.traitsOf)
	if err := spec.Arguments(&m.args); err != nil {
		return nil, err
	}
	if deployment, onAzure := strings.CutPrefix(spec.Model, azurePrefix); onAzure {
		if err := h.azure.open(m, spec, deployment); err != nil {
			return nil, err
		}
		return m, nil
	}
	served, onBedrock := strings.CutPrefix(spec.Model, bedrockPrefix)
	switch {
	case m.args.APIVersion != "":
		return nil, provider.InvalidArguments(errors.New("api_version is for models on Azure"))
	case onBedrock:
		if err := h.openBedrock(m, spec, served); err != nil {
			return nil, err
		}
		return m, nil
	case m.args.AWSRegion != "":
		return nil, provider.InvalidArguments(errors.New("aws_region is for models on Bedrock"))
	}
	access, err := h.plain.Open(spec)
	if err != nil {
		return nil, err
	}
	if m.args.ResponsesAPI == nil {
		m.args.ResponsesAPI = h.accounts[spec.Account].ResponsesAPI
	}
	m.atVendor = access.Endpoint == h.vendor || isVendor(access.Endpoint)
	m.byName = m.atVendor || h.byName
	m.name.foreign = !m.byName && (m.args.ResponsesAPI == nil || !*m.args.ResponsesAPI)
	m.client = chatapi.New(Name, access, transport.RedactSecrets(h.http, access.APIKey), quirks)
	m.client.Headers = h.headers
	m.listed = true
	m.connect(access.Endpoint+responsesapi.Path, spec.Account)
	m.batch = m.batchOf(access.Endpoint)
	return m, nil
}

// connect sets up the Responses API beside the client, and the target for unchanged requests.
func (m *model) connect(responsesURL, account string) {
	m.responses, m.responsesURL = m.client.Exchange, responsesURL
	m.sealer, m.chatSealer = provider.Sealer(openairesponses.Name, responsesURL, account), provider.Sealer(Name, responsesURL, account)
	m.responses.Codec = openairesponses.Codec{}
	asked := m.args.ResponsesAPI
	if asked == nil && !(m.atVendor && m.name.lacksChat()) || asked != nil && !*asked {
		m.upstreams = append(m.upstreams, m.client.Upstream(m.served))
	}
	if asked == nil && m.atVendor || asked != nil && *asked {
		upstream := m.responses.Upstream(responsesURL, m.served, m.client.Authorize)
		upstream.Sealer, upstream.LacksPath = m.sealer, responsesapi.LacksAddress
		m.upstreams = append(m.upstreams, upstream)
	}
}

// Listing implements provider.Lister. Azure and Bedrock list other names than those that calls use.
func (m *model) Listing() (provider.Listing, bool) { return m.client.Listing(m.served), m.listed }

// isVendor reports whether an address is OpenAI's own, in any of its regions. Servers at other addresses speak chat
// completions, for models of any name.
func isVendor(address string) bool {
	at, err := url.Parse(address)
	return err == nil && (at.Hostname() == vendorHost || strings.HasSuffix(at.Hostname(), "."+vendorHost))
}

// Close implements provider.Provider.
func (m *model) Close() error { return nil }
