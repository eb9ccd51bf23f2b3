// Package anthropic is Anthropic's Messages API, or a server that behaves like it at another address: account, names of
// models and their quirks, also in the clouds of others: Azure, Amazon Bedrock and Google's Vertex AI. The format is
// pkg/dialect/anthropic; what a cloud lacks is a [site].
package anthropic

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"

	"github.com/evalfleet/evalfleet/pkg/config"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	format "github.com/evalfleet/evalfleet/pkg/dialect/anthropic"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonscan"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/azureauth"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/bedrockaccess"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/claude"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/exchange"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/transport"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/vertexaccess"
)

// Name is the provider's name.
const Name = "anthropic"

// vendor is Anthropic's own address.
const vendor = "https://api.anthropic.com"

// apiVersion is the default version of the API: https://platform.claude.com/docs/en/api/versioning.
const apiVersion = "2026-10-21"

// path is where requests are posted, below the base URL; countPath is where their tokens are counted.
const (
	path      = "/v1/messages"
	countPath = path + "/count_tokens"
)

func keyHint(string) string {
	return "set ANTHROPIC_API_KEY, or api_key in the configuration of modelgw"
}

// Config sets the provider up.
type Config struct {
	// APIKey is the key of the account `default`.
	APIKey config.Secret `yaml:"api_key" env:"ANTHROPIC_API_KEY"`
	// AuthToken is an OAuth token for the account `default`; it has precedence over the key.
	AuthToken config.Secret `yaml:"auth_token" env:"ANTHROPIC_AUTH_TOKEN"`
	// BaseURL is the address of the account `default`; default is Anthropic's own.
	BaseURL string `yaml:"base_url" env:"ANTHROPIC_BASE_URL"`
	// AllowedBaseURLs are further addresses that requests with the account `default` may use, with the paths below
	// them.
	AllowedBaseURLs []string `yaml:"allowed_base_urls" env:"EVALFLEET_MODELGW_ANTHROPIC_ALLOWED_BASE_URLS"`
	// KeyOptional allows requests without a key, for servers that want none.
	KeyOptional bool `yaml:"key_optional"`
	// Keys are further credentials of the account `default`, among which its conversations are distributed.
	Keys []provider.Key `yaml:"keys"`
	// Version is the version of the API. Default 2026-10-21.
	Version string `yaml:"version" env:"EVALFLEET_MODELGW_ANTHROPIC_VERSION"`
	// Betas are preview features that each request enables.
	Betas []string `yaml:"betas" env:"EVALFLEET_MODELGW_ANTHROPIC_BETAS"`
	// Accounts are further accounts by name.
	Accounts map[string]provider.Account `yaml:"accounts"`
	// Azure are Anthropic's models on Azure: models `anthropic/azure/<model>`.
	Azure AzureConfig `yaml:"azure"`
	// Bedrock are Anthropic's models on Amazon Bedrock, by the Messages API: models `anthropic/bedrock/<model>`.
	Bedrock BedrockConfig `yaml:"bedrock"`
	// Vertex are Anthropic's models on Google's Vertex AI: models `anthropic/vertex/<model>`.
	Vertex VertexConfig `yaml:"vertex"`
}

// models are the listed names, until the data of models says that they are retired; requests may use any other too.
var models = []string{
	"claude-fable-5", "claude-fable-5-1", "claude-haiku-4-5", "claude-haiku-5-5", "claude-opus-4-5", "claude-opus-4-6", "claude-opus-4-7",
	"claude-opus-4-8", "claude-opus-5", "claude-opus-5-5", "claude-sonnet-4-5", "claude-sonnet-4-6", "claude-sonnet-5", "claude-sonnet-5-5",
}

// sealer is who reads the thinking of Anthropic's models: all of them, at Anthropic and in each cloud. What a model
// cannot read it leaves out, also if it belongs to another account:
// https://platform.claude.com/docs/en/build-with-claude/preserved-thinking.
const sealer = format.Name + "/claude"

// host is shared by instances.
type host struct {
	Config
	accounts provider.Accounts
	azure    azureauth.Accounts
	bedrock  *bedrockaccess.Accounts
	vertex   *vertexaccess.Accounts
	http     *http.Client
}

// Kind returns the provider. The function that is returned with it closes idle connections.
func Kind(c Config) (provider.Kind, func() error) {
	h := &host{Config: c, http: transport.NewClient()}
	h.accounts = provider.Accounts{Provider: Name, Vendor: vendor, KeyHint: keyHint}
	h.Version = cmp.Or(h.Version, apiVersion)
	h.accounts.Named = provider.ByName(c.Accounts, provider.Account{
		APIKey: cmp.Or(c.AuthToken, c.APIKey), BaseURL: c.BaseURL, AllowedBaseURLs: c.AllowedBaseURLs, KeyOptional: c.KeyOptional, Keys: c.Keys,
	})
	h.azure, h.bedrock, h.vertex = c.Azure.all(h.http), c.Bedrock.all(h.http), c.Vertex.all(h.http)
	kind := provider.Kind{
		Name:        Name,
		Description: "Anthropic, also on Azure, Bedrock and Vertex AI, and servers that behave like it",
		Dialect:     format.Name,
		Models:      models,
		Open:        h.open,
		Accounts:    h.accounts.Usable(),
		Clouds:      slices.Concat(h.azure.Deployed(), provider.InCloud("bedrock", h.bedrock.Listed()), h.vertex.Listed()),
	}
	return kind, func() error {
		h.http.CloseIdleConnections()
		return nil
	}
}

// arguments are the model arguments.
type arguments struct {
	// Streaming selects whether requests are streamed: true, false, or "auto", the default: when the model thinks, many
	// tokens are requested, or the answer is watched.
	Streaming provider.Streaming `json:"streaming"`
	// Betas are preview features, in addition to the configured ones: a list, or a text with commas.
	Betas provider.Texts `json:"betas"`
	// CacheTTL is how long the server's prompt cache keeps marked entries: `5m` or `1h`; `auto`, the default, leaves it
	// to the server.
	CacheTTL string `json:"cache_ttl"`
	// ExtraBody are members of the request's body, which replace present ones. It names no model.
	ExtraBody json.RawMessage `json:"extra_body"`
}

// model is one opened model.
type model struct {
	name       name
	generation generation
	args       arguments
	members    []dialect.Member // of extra_body
	site       *site
	door       door
	server     string      // the address of the API
	headers    http.Header // account and version
	betas      []string
	upstreams  []*provider.Upstream
	// fetches are the media whose address the API fetches.
	fetches provider.Fetches
	// listing is where the API lists its models; zero where a site has no list of them.
	listing provider.Listing
	// batch is the batch API; nil where a site has none.
	batch *provider.BatchSupport
	// sealer is who reads the seals of the model's thinking.
	sealer string
	// noStream is set once the account's rights have not sufficed for a stream.
	noStream atomic.Bool
}

func (h *host) open(spec provider.Spec) (provider.Provider, error) {
	at, served := siteOf(spec.Model)
	m := &model{name: name(served), generation: name(served).generation(), betas: slices.Clone(h.Betas), site: at, headers: http.Header{versionHeader: {h.Version}}, sealer: sealer}
	if err := spec.Arguments(&m.args); err != nil {
		return nil, err
	}
	if err := m.settle(); err != nil {
		return nil, provider.InvalidArguments(err)
	}
	if err := at.open(h, m, spec); err != nil {
		return nil, err
	}
	if at.noCount {
		return m, nil
	}
	return counter{m}, nil
}

// openVendor gives a model access to Anthropic's own API.
func (h *host) openVendor(m *model, spec provider.Spec) error {
	access, err := h.accounts.Open(spec)
	if err != nil {
		return err
	}
	switch {
	case spec.Account == provider.DefaultAccount && access.Key == 0 && !h.AuthToken.IsZero():
		m.headers.Set("Authorization", "Bearer "+access.APIKey.Reveal())
		m.betas = append(m.betas, betaOAuth)
	case !access.APIKey.IsZero():
		m.headers.Set("X-Api-Key", access.APIKey.Reveal())
	}
	x := m.connect(access.Endpoint, transport.RedactSecrets(h.http, access.APIKey))
	atVendor := access.Endpoint == vendor
	if !atVendor {
		m.sealer = provider.Sealer(format.Name, access.Endpoint, spec.Account)
	}
	m.fetches = provider.Fetches{Images: atVendor, Documents: atVendor}
	m.batch = m.batchesOf(x, access.Endpoint)
	m.listing = provider.Listing{URL: access.Endpoint + "/v1/models", Query: "limit=1000", Model: string(m.name), HTTP: x.HTTP, Authorize: m.authorize}
	return nil
}

// connect sets up the API at an address, which requests in the format reach unchanged.
func (m *model) connect(endpoint string, client *http.Client) *exchange.Exchange {
	x := &exchange.Exchange{Codec: format.Codec{}, HTTP: client, Provider: Name}
	m.door, m.server = &plainDoor{exchange: x, endpoint: endpoint}, endpoint
	m.upstreams = []*provider.Upstream{x.Upstream(endpoint+path, string(m.name), m.authorize)}
	return x
}

// Listing implements provider.Lister: https://platform.claude.com/docs/en/api/models-list.
func (m *model) Listing() (provider.Listing, bool) {
	return m.listing, m.listing.URL != ""
}

// settle converts the model arguments to the form that requests need.
func (m *model) settle() error {
	switch m.args.CacheTTL {
	case "auto":
		m.args.CacheTTL = ""
	case "", "5m", "1h":
	default:
		return fmt.Errorf("cache_ttl must be 5m, 1h or auto, not %q", m.args.CacheTTL)
	}
	m.betas = append(m.betas, m.args.Betas...)
	var err error
	m.members, err = members(string(m.args.ExtraBody), nil)
	if slices.ContainsFunc(m.members, func(member dialect.Member) bool { return member.Name == "model" }) {
		return errors.New("extra_body must not name a model: a call has the price and the limits of its own")
	}
	return err
}

// ignored are options that the API does not have, or no longer has:
// https://platform.claude.com/docs/en/api/migration-2026-10-21.
var ignored = []string{
	"temperature", "top_p", "top_k", "frequency_penalty", "presence_penalty", "num_choices", "logit_bias", "logprobs", "top_logprobs", "verbosity",
	"modalities",
}

// dropped are options that the API or the model does not have, and that shape no more than how an answer is made.
func (m *model) dropped() []string {
	all := []string{"seed", "best_of", "prompt_logprobs", "reasoning_mode", "reasoning_summary"}
	if m.site.noFallback || m.generation.refusesFallback() {
		all = append(all, "fallback_models")
	}
	if m.generation.Control() == claude.NoThinking {
		all = append(all, "reasoning_effort", "reasoning_tokens")
	}
	if !m.name.caches() {
		all = append(all, "cache_prompt")
	}
	return all
}

// Overruled implements provider.OptionDropper.
func (m *model) Overruled(c *modelv1.GenerateConfig) []provider.Unsent {
	g, asked := m.generation, c.GetReasoningEffort()
	var all []provider.Unsent
	switch control := g.Control(); {
	case control == claude.NoThinking:
	case asked == "none" && g.thinksAlways():
		all = append(all, provider.Unsent{Option: "reasoning_effort", Why: "whose reasoning cannot be switched off"})
	case asked == "" || asked == "none":
	case control == claude.ByBudget && c.ReasoningTokens != nil:
		all = append(all, provider.Unsent{Option: "reasoning_effort", Why: "since reasoning_tokens takes precedence"})
	case control == claude.ByEither && c.ReasoningTokens != nil:
		all = append(all, provider.Unsent{Option: "reasoning_tokens", Why: "since reasoning_effort takes precedence"})
	}
	if c.Effort != nil && asked != "" && asked != "none" && (g.Control() == claude.ByEither || g.Control() == claude.ByEffort) {
		all = append(all, provider.Unsent{Option: "effort", Why: "since reasoning_effort takes precedence"})
	}
	return all
}

// Changed implements provider.OptionChanger.
func (m *model) Changed(c *modelv1.GenerateConfig) []*modelv1.ChangedOption {
	effort := c.GetEffort()
	if c.GetReasoningEffort() == "none" && m.generation.off() != "" && m.generation.calmWhenOff() && (effort == "max" || effort == "xhigh") {
		return provider.Change("effort", effort, "high")
	}
	return m.generation.Changed(c)
}

// Mode implements provider.Moded: the arguments of a model may ask for a speed and a region.
func (m *model) Mode(*modelv1.GenerateConfig) string {
	var words []string
	for _, name := range []string{"speed", "inference_geo"} {
		if at := slices.IndexFunc(m.members, func(member dialect.Member) bool { return member.Name == name }); at >= 0 {
			if word, ok := jsonscan.Text([]byte(m.members[at].JSON)); ok {
				words = append(words, word)
			}
		}
	}
	return format.Mode(words...)
}

// Check implements provider.Provider.
func (m *model) Check(c *modelv1.GenerateConfig) error {
	_, err := m.plan(&provider.Request{Config: c})
	return err
}

// Capabilities implements provider.Provider.
func (m *model) Capabilities() provider.Capabilities {
	g, always := m.generation, m.args.Streaming.Always
	return provider.Capabilities{
		ConnectionKey:     m.fullName(),
		MaxTokens:         g.base(),
		ReasoningHeadroom: g.room(),
		LeastEffort:       g.leastEffort(),
		ToolsRequired:     true,
		RefusesBlank:      true,
		UniqueCalls:       true,
		MergeUser:         true, MergeAssistant: true,
		ForceReasoning: modelv1.ReasoningHistory_REASONING_HISTORY_ALL,
		LongCache:      m.args.CacheTTL == "1h",
		Features: &modelv1.Capabilities{
			Tools: true, Images: true, Streaming: always == nil || *always, ResponseSchema: true, Reasoning: g.Control() != claude.NoThinking,
			ToolResultImages: true, ToolResultDocuments: true, CountTokens: !m.site.noCount, Batch: m.batch != nil, Compaction: g.compacts(),
		},
		Hosted:    m.hosted(),
		Fetches:   m.fetches,
		Batch:     m.batch,
		Ignored:   ignored,
		Dropped:   m.dropped(),
		ExtraBody: passedOn,
		Upstreams: m.upstreams,
		Server:    m.server,
		Sealer:    m.sealer,
	}
}

// Close implements provider.Provider.
func (m *model) Close() error { return nil }
