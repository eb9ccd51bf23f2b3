// Package grok is xAI's chat API over gRPC, or a server that behaves like it at another address: account, connections,
// names of models and their quirks, and the conversion between canonical messages and those of package xai. No client
// speaks this protocol to the gateway, so it is no dialect.
package grok

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/config"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/transport"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/xai"
)

// Name is the provider's name.
const Name = "grok"

// vendor is the address of xAI's own API.
const vendor = "https://api.x.ai"

func keyHint(string) string {
	return "set XAI_API_KEY or GROK_API_KEY, or api_key in the configuration of modelgw"
}

// Config sets the provider up. An address is `https://host`, `host:port` or `host`, with TLS, or `http://host:port`,
// without; a loopback host without a scheme has none either. A key is never sent without TLS to another host than
// loopback.
type Config struct {
	// APIKey is the key of the account `default`.
	APIKey config.Secret `yaml:"api_key" env:"XAI_API_KEY"`
	// GrokAPIKey is used if APIKey is not set.
	GrokAPIKey config.Secret `yaml:"grok_api_key" env:"GROK_API_KEY"`
	// BaseURL is the gRPC address of the account `default`; default is xAI's own. Without a scheme it has TLS, unless
	// it is loopback.
	BaseURL string `yaml:"base_url" env:"XAI_BASE_URL"`
	// GrokBaseURL is used if BaseURL is not set.
	GrokBaseURL string `yaml:"grok_base_url" env:"GROK_BASE_URL"`
	// AllowedBaseURLs are further addresses that requests with the account `default` may use.
	AllowedBaseURLs []string `yaml:"allowed_base_urls" env:"EVALFLEET_MODELGW_GROK_ALLOWED_BASE_URLS"`
	// KeyOptional allows requests without a key, for servers that want none.
	KeyOptional bool `yaml:"key_optional"`
	// Keys are further credentials of the account `default`, among which its conversations are distributed.
	Keys []provider.Key `yaml:"keys"`
	// Accounts are further accounts by name.
	Accounts map[string]provider.Account `yaml:"accounts"`
}

// models are the listed names, until the data of models says that they are retired; requests may use any other too.
var models = []string{"grok-4.20", "grok-4.20-non-reasoning", "grok-4.3", "grok-4.5", "grok-4.6", "grok-4.7"}

// host is shared by instances.
type host struct {
	accounts    provider.Accounts
	connections *connections
}

// Kind returns the provider. The function that is returned with it closes its connections.
func Kind(c Config) (provider.Kind, func() error) { return kindWith(c, &connections{}) }

func kindWith(c Config, conns *connections) (provider.Kind, func() error) {
	h := &host{connections: conns}
	h.accounts = provider.Accounts{Provider: Name, Vendor: vendor, KeyHint: keyHint, Named: provider.ByName(c.Accounts, provider.Account{
		APIKey: cmp.Or(c.APIKey, c.GrokAPIKey), BaseURL: cmp.Or(c.BaseURL, c.GrokBaseURL), AllowedBaseURLs: c.AllowedBaseURLs, KeyOptional: c.KeyOptional, Keys: c.Keys,
	})}
	for name, account := range h.accounts.Named {
		account.BaseURL, account.AllowedBaseURLs, account.Keys = WithScheme(account.BaseURL), slices.Clone(account.AllowedBaseURLs), slices.Clone(account.Keys)
		for i := range account.Keys {
			account.Keys[i].BaseURL = WithScheme(account.Keys[i].BaseURL)
		}
		for i, allowed := range account.AllowedBaseURLs {
			account.AllowedBaseURLs[i] = WithScheme(allowed)
		}
		h.accounts.Named[name] = account
	}
	kind := provider.Kind{
		Name:        Name,
		Description: "xAI, and servers that behave like it",
		Models:      models,
		Open:        h.open,
		Accounts:    h.accounts.Usable(),
	}
	return kind, conns.Close
}

// arguments are the model arguments.
type arguments struct {
	// Streaming selects whether answers are streamed: true, false, or "auto", the default: when the answer is watched.
	Streaming provider.Streaming `json:"streaming"`
	// DisableRetry is accepted: retries within the connection, which it would switch off, are always off.
	DisableRetry bool `json:"disable_retry"`
	// ServiceTier is the priority of requests: `default` or `priority`; by default it is left to the server.
	ServiceTier string `json:"service_tier"`
}

// tiers are the priorities of requests.
var tiers = map[string]xai.ServiceTier{
	"": xai.ServiceTier_SERVICE_TIER_UNSPECIFIED, "default": xai.ServiceTier_SERVICE_TIER_DEFAULT, "priority": xai.ServiceTier_SERVICE_TIER_PRIORITY,
}

// model is one opened model.
type model struct {
	name   name
	args   arguments
	client xai.ChatClient
	// tokenizer splits texts into tokens.
	tokenizer xai.TokenizeClient
	// redact redacts the account's key in the server's messages.
	redact func(string) string
	batch  *provider.BatchSupport
	// server is the address of the API, and sealer who reads its sealed reasoning.
	server, sealer string
}

func (h *host) open(spec provider.Spec) (provider.Provider, error) {
	m := &model{name: name(spec.Model)}
	if err := spec.Arguments(&m.args); err != nil {
		return nil, err
	}
	if _, known := tiers[m.args.ServiceTier]; !known {
		return nil, provider.InvalidArguments(fmt.Errorf("service_tier must be default or priority, not %q", m.args.ServiceTier))
	}
	spec.BaseURL = WithScheme(spec.BaseURL)
	access, err := h.accounts.Open(spec)
	if err != nil {
		return nil, err
	}
	connection, err := h.connections.to(spec.Account, access)
	if err != nil {
		return nil, err
	}
	m.client, m.tokenizer = xai.NewChatClient(connection), xai.NewTokenizeClient(connection)
	m.redact = transport.RedactText(access.APIKey)
	m.batch = m.batchesOf(connection)
	m.server, m.sealer = access.Endpoint, provider.Sealer(Name, access.Endpoint, spec.Account)
	return m, nil
}

// ignored are options that the API or the model does not have.
func (m *model) ignored() []string {
	all := []string{"top_k", "logit_bias", "num_choices", "verbosity", "modalities"}
	if !m.name.takesPenalties() {
		all = append(all, "stop_seqs", "frequency_penalty", "presence_penalty")
	}
	return all
}

// dropped are options that the API or the model does not have, and that shape no more than how an answer is made.
func (m *model) dropped() []string {
	all := []string{
		"best_of", "prompt_logprobs", "internal_tools", "fallback_models", "cache_prompt", "effort", "reasoning_mode", "reasoning_summary", "reasoning_tokens",
	}
	if !m.name.takesEffort() {
		all = append(all, "reasoning_effort")
	}
	return all
}

// Overruled implements provider.OptionDropper.
func (m *model) Overruled(c *modelv1.GenerateConfig) []provider.Unsent {
	var all []provider.Unsent
	if m.name.takesEffort() && c.GetReasoningEffort() == "none" {
		all = append(all, provider.Unsent{Option: "reasoning_effort", Why: "which is left to its own default, since inspect_ai does not send this effort"})
	}
	if c.GetBatch().GetEnabled() && m.args.ServiceTier != "" {
		all = append(all, provider.Unsent{Option: provider.ModelArgument + "service_tier", Why: "whose batches have no tiers"})
	}
	return all
}

// Changed implements provider.OptionChanger.
func (m *model) Changed(c *modelv1.GenerateConfig) []*modelv1.ChangedOption {
	effort := m.name.effort(c.GetReasoningEffort())
	if effort == nil {
		return nil
	}
	return provider.ChangeEffort(c, strings.ToLower(strings.TrimPrefix(effort.String(), "EFFORT_")))
}

// Capabilities implements provider.Provider.
func (m *model) Capabilities() provider.Capabilities {
	always := m.args.Streaming.Always
	return provider.Capabilities{
		ConnectionKey: string(m.name),
		LeastEffort:   m.name.leastEffort(),
		Ignored:       m.ignored(),
		Dropped:       m.dropped(),
		ExtraBody:     []string{},
		Features: &modelv1.Capabilities{
			Tools: true, Images: true, Streaming: always == nil || *always, ResponseSchema: true, Reasoning: m.name.reasons(),
			Batch: true,
		},
		Hosted: m.hosted(),
		Batch:  m.batch,
		Server: m.server,
		Sealer: m.sealer,
	}
}

// Close implements provider.Provider. The account's connection is shared and stays open.
func (m *model) Close() error { return nil }
