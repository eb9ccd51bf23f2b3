// Package mistral is Mistral's API, or a server that behaves like it at another address, such as a deployment on Azure:
// account, names of models and their quirks. The formats are pkg/dialect/mistralconversations and
// pkg/dialect/mistralchat; which of the two the calls of a model have depends on the account and the model.
package mistral

import (
	"cmp"
	"net/http"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/config"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/mistralchat"
	"github.com/evalfleet/evalfleet/pkg/dialect/mistralconversations"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/azureauth"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/batchapi"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/exchange"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/transport"
)

// Name is the provider's name.
const Name = "mistral"

// azure precedes the names of models that are deployed on Azure.
const azure = "azure"

// vendor is the address of Mistral's own API, and version that of the API, which precedes all paths.
const (
	vendor  = "https://api.mistral.ai"
	version = "/v1"
)

func keyHint(string) string { return "set MISTRAL_API_KEY, or api_key in the configuration of modelgw" }

// Config sets the provider up.
type Config struct {
	// APIKey is the key of the account `default`.
	APIKey config.Secret `yaml:"api_key" env:"MISTRAL_API_KEY"`
	// BaseURL is the address of the account `default`, with or without `/v1` at its end; default is Mistral's own.
	BaseURL string `yaml:"base_url" env:"MISTRAL_BASE_URL"`
	// AllowedBaseURLs are further addresses that requests with the account `default` may use, with the paths below
	// them.
	AllowedBaseURLs []string `yaml:"allowed_base_urls" env:"EVALFLEET_MODELGW_MISTRAL_ALLOWED_BASE_URLS"`
	// KeyOptional allows requests without a key, for servers that want none.
	KeyOptional bool `yaml:"key_optional"`
	// Keys are further credentials of the account `default`, among which its conversations are distributed.
	Keys []provider.Key `yaml:"keys"`
	// ConversationAPI selects the API for the models of the account `default`: true is the Conversations API, false is
	// chat completions. If it is omitted, it is the Conversations API, except for models that hear (voxtral).
	ConversationAPI *bool `yaml:"conversation_api"`
	// Azure is Mistral's models on Azure: models `mistral/azure/<model>`.
	Azure Azure `yaml:"azure"`
	// Accounts are further accounts by name.
	Accounts map[string]Account `yaml:"accounts"`
}

// Azure is a deployment of Mistral's models on Azure.
type Azure struct {
	// APIKey is its key.
	APIKey config.Secret `yaml:"api_key" env:"AZUREAI_MISTRAL_API_KEY"`
	// AzureAPIKey is used if APIKey is not set: clients of this API know both variables.
	AzureAPIKey config.Secret `yaml:"azure_api_key" env:"AZURE_MISTRAL_API_KEY"`
	// BaseURL is its address, with or without `/v1` at its end. Required.
	BaseURL string `yaml:"base_url" env:"AZUREAI_MISTRAL_BASE_URL"`
	// AzureBaseURL is used if BaseURL is not set: clients of this API know both variables.
	AzureBaseURL string `yaml:"azure_base_url" env:"AZURE_MISTRAL_BASE_URL"`
	// AllowedBaseURLs are further addresses that requests may use, with the paths below them.
	AllowedBaseURLs []string `yaml:"allowed_base_urls"`
	// Identity is used if there is no key.
	Identity azureauth.Default `yaml:"identity"`
	// Keys are further credentials, among which conversations are distributed.
	Keys []provider.Key `yaml:"keys"`
	// ConversationAPI selects the API, as for the account `default`. A deployment that has chat completions alone needs
	// false.
	ConversationAPI *bool `yaml:"conversation_api"`
}

// account is the deployment as an account.
func (a Azure) account() Account {
	return Account{ConversationAPI: a.ConversationAPI, Account: provider.Account{
		APIKey: cmp.Or(a.APIKey, a.AzureAPIKey), BaseURL: cmp.Or(a.BaseURL, a.AzureBaseURL), AllowedBaseURLs: a.AllowedBaseURLs, Keys: a.Keys,
	}}
}

// Account is a further account.
type Account struct {
	provider.Account `yaml:",inline"`
	// ConversationAPI selects the API for the account's models: true is the Conversations API, false is chat
	// completions. If it is omitted, it is the Conversations API, except for models that hear (voxtral).
	ConversationAPI *bool `yaml:"conversation_api"`
}

// models are the listed names; requests may use any other too. Those that end with `latest` are not listed: which model
// they are changes, so that neither their limits nor their prices are known.
var models = []string{
	"codestral-2508", "ministral-14b-2512", "ministral-3b-2512", "ministral-8b-2512", "mistral-large-2512", "mistral-large-4", "mistral-medium-2604", "mistral-small-2603",
}

// site is where models are served: at Mistral, or on Azure.
type site struct {
	accounts map[string]Account
	plain    azureauth.Accounts // accounts without Mistral's own settings
}

// newSite makes a site of accounts, which have an identity of Azure if they have no key.
func newSite(accounts map[string]Account, identity azureauth.Identity, plain provider.Accounts, client *http.Client) *site {
	named := map[string]azureauth.Account{}
	for name, account := range accounts {
		named[name] = azureauth.Account{Account: account.Account, Identity: identity}
	}
	return &site{accounts: accounts, plain: azureauth.NewAccounts(plain, named, client)}
}

// host is shared by instances.
type host struct {
	own, azure *site
	http       *http.Client
}

// Kind returns the provider. The function that is returned with it closes idle connections.
func Kind(c Config) (provider.Kind, func() error) {
	accounts := provider.ByName(c.Accounts, Account{ConversationAPI: c.ConversationAPI, Account: provider.Account{
		APIKey: c.APIKey, BaseURL: c.BaseURL, AllowedBaseURLs: c.AllowedBaseURLs, KeyOptional: c.KeyOptional, Keys: c.Keys,
	}})
	h := &host{http: transport.NewClient()}
	h.own = newSite(accounts, azureauth.Identity{}, provider.Accounts{Provider: Name, Vendor: vendor, KeyHint: keyHint}, h.http)
	onAzure := provider.Accounts{Provider: Name + "/" + azure, KeyHint: func(string) string {
		return "set AZUREAI_MISTRAL_API_KEY, or azure.api_key or azure.identity in the configuration of modelgw"
	}}
	h.azure = newSite(map[string]Account{provider.DefaultAccount: c.Azure.account()}, c.Azure.Identity.Identity(), onAzure, h.http)
	kind := provider.Kind{
		Name:        Name,
		Description: "Mistral's API, on Azure too, and servers that behave like it",
		Dialect:     mistralconversations.Name,
		Models:      models,
		Open:        h.open,
		Accounts:    h.own.plain.Usable(),
		Clouds:      h.azure.plain.Deployed(),
	}
	return kind, func() error {
		h.http.CloseIdleConnections()
		return nil
	}
}

// arguments are the model arguments.
type arguments struct {
	// ConversationAPI selects the API: the Conversations API, or chat completions.
	ConversationAPI *bool `json:"conversation_api"`
	// Streaming reports whether requests are streamed; the default is when the answer is watched.
	Streaming *bool `json:"streaming"`
}

// model is one opened model.
type model struct {
	// name is the server's name of the model; shown precedes it with its service, if it has one.
	name, shown string
	args        arguments
	api         *api
	exchange    exchange.Exchange
	url         string
	key         config.Secret
	upstreams   []*provider.Upstream
	// cacheKey means that requests have a key for the prompt cache, as Mistral's own chat completions take it:
	// https://docs.mistral.ai/inference/conversations/advanced/prompt-caching.
	cacheKey bool
	// batch is the batch API, which takes chat completions; nil for other models.
	batch *provider.BatchSupport
}

func (h *host) open(spec provider.Spec) (provider.Provider, error) {
	m := &model{name: spec.Model, shown: spec.Model}
	at := h.own
	if service, name, within := strings.Cut(spec.Model, "/"); within {
		switch {
		case service != azure:
			return nil, rpcerr.InvalidField("model", "%s/%s: %s is no service of %s; write %s/<model> or %s/%s/<model>", Name, spec.Model, service, Name, Name, Name, azure)
		case spec.Account != provider.DefaultAccount:
			return nil, rpcerr.InvalidField("account", "the model %s/%s names its service, %s; leave the account %q out", Name, spec.Model, azure, spec.Account)
		}
		at, m.name = h.azure, name
	}
	if err := spec.Arguments(&m.args); err != nil {
		return nil, err
	}
	access, client, err := at.open(spec)
	if err != nil {
		return nil, err
	}
	m.api = m.selectAPI(at.accounts[spec.Account].ConversationAPI)
	m.url = strings.TrimSuffix(access.Endpoint, version) + version + m.api.path
	m.key = access.APIKey
	m.exchange = exchange.Exchange{Codec: m.api.codec, HTTP: client, Provider: Name, Quirks: quirks}
	m.upstreams = []*provider.Upstream{m.exchange.Upstream(m.url, m.name, m.authorize)}
	m.cacheKey = at == h.own && m.api == completions
	if m.cacheKey {
		m.batch = &provider.BatchSupport{
			API: &batchapi.Files{
				Client: batchapi.Client{Exchange: &m.exchange, Authorize: m.authorize}, Base: strings.TrimSuffix(access.Endpoint, version) + version, Dialect: batchapi.Mistral,
			},
			MaxRequests: 50_000, MaxBytes: 200 << 20, PriceShare: 0.5, // https://docs.mistral.ai/capabilities/batch/
		}
	}
	return m, nil
}

// open returns access through the account of a request, and a client for it.
func (s *site) open(spec provider.Spec) (provider.Access, *http.Client, error) {
	account := s.accounts[spec.Account]
	if s.plain.Vendor == "" && account.BaseURL == "" && spec.BaseURL == "" && len(account.Keys) == 0 {
		return provider.Access{}, nil, rpcerr.ProviderNotConfigured(s.plain.Provider, spec.Account, "%s has no address: set AZUREAI_MISTRAL_BASE_URL, or azure.base_url in the configuration of modelgw", s.plain.Provider)
	}
	return s.plain.Open(spec)
}

// selectAPI selects the API: what the model's arguments ask for, else what the account does, else the Conversations
// API, except for models that hear, whose recordings it does not take.
func (m *model) selectAPI(account *bool) *api {
	for _, asked := range []*bool{m.args.ConversationAPI, account} {
		switch {
		case asked == nil:
		case *asked:
			return conversations
		default:
			return completions
		}
	}
	if strings.Contains(strings.ToLower(m.name), "voxtral") {
		return completions
	}
	return conversations
}

// authorize sets the account's credential on a request, replacing a present one.
func (m *model) authorize(h http.Header) {
	h.Del("Authorization")
	if !m.key.IsZero() {
		h.Set("Authorization", "Bearer "+m.key.Reveal())
	}
}

// Listing implements provider.Lister: https://docs.mistral.ai/api/endpoint/models.
func (m *model) Listing() (provider.Listing, bool) {
	return provider.Listing{URL: strings.TrimSuffix(m.url, m.api.path) + "/models", Model: m.name, HTTP: m.exchange.HTTP, Authorize: m.authorize}, m.name == m.shown
}

// Close implements provider.Provider.
func (m *model) Close() error { return nil }

// api is one of Mistral's two APIs.
type api struct {
	codec dialect.Codec
	// path is where it is, below the version.
	path string
	// ignored are the options that affect an answer and are not sent.
	ignored []string
}

var (
	conversations = &api{
		codec: mistralconversations.Codec{}, path: "/conversations",
		ignored: []string{"logit_bias", "logprobs", "modalities", "num_choices", "top_k", "top_logprobs", "verbosity"},
	}
	// completions would take more options than are sent: inspect_ai sends the same ones, and results stay comparable.
	completions = &api{
		codec: mistralchat.Codec{}, path: "/chat/completions",
		ignored: []string{
			"frequency_penalty", "logit_bias", "logprobs", "modalities", "num_choices", "presence_penalty", "stop_seqs", "top_k", "top_logprobs", "verbosity",
		},
	}
)
