// Package openai is OpenAI's API, or a server that behaves like it at another address: account, names of models and
// their quirks. The format is pkg/dialect/openaichat. Only chat completions are supported; models that need the
// Responses API are refused with an error that names the argument to set.
package openai

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/config"
	"github.com/evalfleet/evalfleet/pkg/dialect/openaichat"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/chatapi"
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
	// Organization is sent with each request, if it is set.
	Organization string `yaml:"organization" env:"OPENAI_ORG_ID"`
	// Project is sent with each request, if it is set.
	Project string `yaml:"project" env:"OPENAI_PROJECT_ID"`
	// ResponsesAPI selects the API for the models of the account `default`: false is chat completions for all. If it is
	// omitted, a model's name decides at OpenAI's own address, and at any other it is chat completions.
	ResponsesAPI *bool `yaml:"responses_api"`
	// Accounts are further accounts by name.
	Accounts map[string]Account `yaml:"accounts"`
}

// Account is a further account.
type Account struct {
	provider.Account `yaml:",inline"`
	// ResponsesAPI selects the API for the account's models: false is chat completions for all. If it is omitted, a
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
	headers  map[string]string
	http     *http.Client
}

// Kind returns the provider. The function that is returned with it closes idle connections.
func Kind(c Config) (provider.Kind, func() error) { return kindAt(c, vendor) }

// kindAt is Kind with the vendor at another address.
func kindAt(c Config, vendor string) (provider.Kind, func() error) {
	h := &host{vendor: vendor, accounts: map[string]Account{}, headers: map[string]string{}, http: transport.NewClient()}
	maps.Copy(h.accounts, c.Accounts)
	h.accounts[provider.DefaultAccount] = Account{ResponsesAPI: c.ResponsesAPI, Account: provider.Account{
		APIKey: c.APIKey, BaseURL: c.BaseURL, AllowedBaseURLs: c.AllowedBaseURLs, KeyOptional: c.KeyOptional,
	}}
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
		Description: "OpenAI, and servers that behave like it",
		Dialect:     openaichat.Name,
		Models:      models,
		Open:        h.open,
		Accounts:    h.plain.Usable(),
	}
	return kind, func() error {
		h.http.CloseIdleConnections()
		return nil
	}
}

// arguments are the model arguments.
type arguments struct {
	// ResponsesAPI selects the API: false is chat completions.
	ResponsesAPI *bool `json:"responses_api"`
	// Streaming reports whether requests are streamed; the default is when the answer is watched.
	Streaming *bool `json:"streaming"`
	// ServiceTier, SafetyIdentifier, PromptCacheKey and PromptCacheRetention are sent unchanged.
	ServiceTier          string `json:"service_tier"`
	SafetyIdentifier     string `json:"safety_identifier"`
	PromptCacheKey       string `json:"prompt_cache_key"`
	PromptCacheRetention string `json:"prompt_cache_retention"`
	// ResponsesStore, ResponsesPhase and Background are of the Responses API.
	ResponsesStore *bool `json:"responses_store"`
	ResponsesPhase *bool `json:"responses_phase"`
	Background     *bool `json:"background"`
}

// model is one opened model.
type model struct {
	name   name
	args   arguments
	client *chatapi.Client
	// atVendor means that requests go to OpenAI's own address.
	atVendor bool
	// upstream is the client's, made once.
	upstream *provider.Upstream
}

func (h *host) open(spec provider.Spec) (provider.Provider, error) {
	m := &model{name: name(spec.Model)}
	for _, service := range []string{"azure/", "bedrock/"} {
		if strings.HasPrefix(spec.Model, service) {
			return nil, rpcerr.NotBuiltYet("access to OpenAI's models on " + strings.TrimSuffix(service, "/"))
		}
	}
	if err := spec.Arguments(&m.args); err != nil {
		return nil, err
	}
	access, err := h.plain.Open(spec.Account, spec.BaseURL)
	if err != nil {
		return nil, err
	}
	if m.args.ResponsesAPI == nil {
		m.args.ResponsesAPI = h.accounts[spec.Account].ResponsesAPI
	}
	m.atVendor = access.Endpoint == h.vendor || isVendor(access.Endpoint)
	m.client = chatapi.New(Name, access, transport.RedactSecrets(h.http, access.APIKey), quirks)
	m.client.Headers = h.headers
	m.upstream = m.client.Upstream(spec.Model)
	return m, nil
}

// isVendor reports whether an address is OpenAI's own, in any of its regions. Servers at other addresses speak chat
// completions, for models of any name.
func isVendor(address string) bool {
	at, err := url.Parse(address)
	return err == nil && (at.Hostname() == vendorHost || strings.HasSuffix(at.Hostname(), "."+vendorHost))
}

// Capabilities implements provider.Provider.
func (m *model) Capabilities() provider.Capabilities {
	ignored, dropped := slices.Clone(chatapi.Ignored), slices.Clone(chatapi.Dropped)
	if m.name.reasons() {
		ignored = append(ignored, "temperature")
	}
	if m.name.isOSeries() {
		dropped = append(dropped, "parallel_tool_calls")
	}
	if !m.name.takesEffort() {
		dropped = append(dropped, "reasoning_effort")
	}
	if m.takesCacheMarks() {
		dropped = slices.DeleteFunc(dropped, func(option string) bool { return option == "cache_prompt" })
	}
	return provider.Capabilities{
		ConnectionKey:    string(m.name),
		Ignored:          ignored,
		Dropped:          dropped,
		ExtraBodyDropped: chatapi.ExtraBodyDropped,
		Features: &modelv1.Capabilities{
			Tools: true, Images: true, Audio: true, Streaming: m.args.Streaming == nil || *m.args.Streaming, ResponseSchema: true,
			Reasoning: m.name.reasons(),
		},
		Upstream: m.upstream,
	}
}

// Overruled implements provider.OptionDropper: chat completions lack the features of these arguments.
func (m *model) Overruled(*modelv1.GenerateConfig) []provider.Unsent {
	var all []provider.Unsent
	for _, argument := range []struct {
		name string
		asks *bool
	}{{"responses_store", m.args.ResponsesStore}, {"responses_phase", m.args.ResponsesPhase}} {
		if argument.asks != nil && *argument.asks {
			all = append(all, provider.Unsent{Option: provider.ModelArgument + argument.name, Why: "since chat completions do not take it"})
		}
	}
	return all
}

// takesCacheMarks reports whether requests may contain marks for the server's cache.
func (m *model) takesCacheMarks() bool { return m.atVendor && m.name.takesCacheMarks() }

// Close implements provider.Provider.
func (m *model) Close() error { return nil }
