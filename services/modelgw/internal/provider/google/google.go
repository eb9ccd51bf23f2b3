// Package google is Google's Gemini API, the same on Vertex AI, or a server that behaves like it at another address:
// account, names of models and their quirks. The format is pkg/dialect/gemini. Access is by a key, or by credentials of
// Google.
package google

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/evalfleet/evalfleet/pkg/config"
	format "github.com/evalfleet/evalfleet/pkg/dialect/gemini"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/lru"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/accesstoken"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/exchange"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/googleauth"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/transport"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/vertexaccess"
)

// Name is the provider's name.
const Name = "google"

// vendor is the address of Google's own API.
const vendor = "https://generativelanguage.googleapis.com"

// apiVersion is the default version of the API; the stable one, v1, lacks thoughts and JSON Schema:
// https://ai.google.dev/gemini-api/docs/api-versions.
const apiVersion = "v1beta"

func keyHint(string) string {
	return "set GOOGLE_API_KEY or GEMINI_API_KEY, or api_key in the configuration of modelgw"
}

// Config sets the provider up.
type Config struct {
	// APIKey is the key of the account `default`.
	APIKey config.Secret `yaml:"api_key" env:"GOOGLE_API_KEY"`
	// GeminiAPIKey is used if APIKey is not set: clients of this API know both variables.
	GeminiAPIKey config.Secret `yaml:"gemini_api_key" env:"GEMINI_API_KEY"`
	// BaseURL is the address of the account `default`, without the version of the API; default is Google's own.
	BaseURL string `yaml:"base_url" env:"GOOGLE_BASE_URL"`
	// AllowedBaseURLs are further addresses that requests with the account `default` may use, with the paths below
	// them.
	AllowedBaseURLs []string `yaml:"allowed_base_urls" env:"EVALFLEET_MODELGW_GOOGLE_ALLOWED_BASE_URLS"`
	// KeyOptional allows requests without a key, for servers that want none.
	KeyOptional bool `yaml:"key_optional"`
	// UseADC gives the account `default` credentials of Google in place of a key, if it has none.
	UseADC bool `yaml:"use_adc" env:"GOOGLE_USE_ADC"`
	// QuotaProject is the project to which requests with credentials of Google count; default is that of the
	// credentials.
	QuotaProject       string `yaml:"quota_project" env:"GOOGLE_CLOUD_QUOTA_PROJECT"`
	googleauth.Default `yaml:",inline"`
	// Keys are further credentials of the account `default`, among which its conversations are distributed.
	Keys []provider.Key `yaml:"keys"`
	// Accounts are further accounts by name.
	Accounts map[string]provider.Account `yaml:"accounts"`
	// Vertex are Google's models on Vertex AI: models `google/vertex/<model>`.
	Vertex VertexConfig `yaml:"vertex"`
}

// models are the listed names, until the data of models says that they are retired; requests may use any other too.
var models = []string{
	"gemini-2.5-flash", "gemini-2.5-flash-lite", "gemini-2.5-pro", "gemini-3-flash-preview", "gemini-3.1-flash-lite", "gemini-3.1-pro-preview",
	"gemini-3.5-flash", "gemini-3.5-flash-lite", "gemini-3.6-flash", "gemini-3.7-flash", "gemini-3.8-flash", "gemini-4-argon",
}

// host is shared by instances.
type host struct {
	Config
	accounts provider.Accounts
	vertex   *vertexaccess.Accounts
	http     *http.Client
	// readyEvery is the time between two questions whether a file can be used.
	readyEvery time.Duration
	// maxInline bounds the bodies of a batch without a file, in bytes.
	maxInline int64

	mu sync.Mutex
	// tokens are those of the account `default`, by the project to which requests count and their scopes. Requests
	// choose these, so that the latest ones are kept.
	tokens *lru.Cache[string, *accesstoken.Source]
}

// Kind returns the provider. The function that is returned with it closes idle connections.
func Kind(c Config) (provider.Kind, func() error) { return kindWith(c, readyEvery, maxInlineBytes) }

// maxSources bounds the kept sources of access tokens.
const maxSources = 100

// kindWith is Kind with another time between questions whether a file can be used, and another bound of inline batches.
func kindWith(c Config, every time.Duration, maxInline int64) (provider.Kind, func() error) {
	h := &host{Config: c, readyEvery: every, maxInline: maxInline, http: transport.NewClient(), tokens: lru.New[string, *accesstoken.Source](maxSources)}
	h.vertex = c.Vertex.all(h.http)
	h.accounts = provider.Accounts{Provider: Name, Vendor: vendor, KeyHint: keyHint, Named: provider.ByName(c.Accounts, provider.Account{
		APIKey: cmp.Or(c.APIKey, c.GeminiAPIKey), BaseURL: c.BaseURL, AllowedBaseURLs: c.AllowedBaseURLs, KeyOptional: c.KeyOptional, Keys: c.Keys,
	})}
	listed := h.accounts
	if own := listed.Named[provider.DefaultAccount]; !own.HasKey() && c.UseADC {
		// Whether Google gives a token is known once one is needed.
		listed.Named = maps.Clone(listed.Named)
		own.KeyOptional = true
		listed.Named[provider.DefaultAccount] = own
	}
	kind := provider.Kind{
		Name:        Name,
		Description: "Google's Gemini API, also on Vertex AI, and servers that behave like it",
		Dialect:     format.Name,
		Models:      models,
		Open:        h.open,
		Accounts:    listed.Usable(),
		Clouds:      h.vertex.Listed(),
	}
	return kind, func() error {
		h.http.CloseIdleConnections()
		return nil
	}
}

// arguments are the model arguments.
type arguments struct {
	// APIVersion is the version of the API, such as `v1`; default is v1beta.
	APIVersion string `json:"api_version"`
	// Streaming streams every answer; by default one that is watched.
	Streaming *bool `json:"streaming"`
	// SafetySettings are the thresholds of the content filter by category; a category that is not there is `none`.
	SafetySettings map[string]string `json:"safety_settings"`
	// Project and Location are the place on Vertex AI, in place of the account's.
	Project  string `json:"project"`
	Location string `json:"location"`
	// UseADC uses credentials of Google in place of the key of the account `default`; false uses the key.
	UseADC *bool `json:"use_adc"`
	// Scopes are what the access tokens are for; default is Google Cloud.
	Scopes provider.Texts `json:"scopes"`
	// QuotaProjectID is the project to which requests count.
	QuotaProjectID string `json:"quota_project_id"`
}

// model is one opened model.
type model struct {
	name     name
	args     arguments
	safety   []format.SafetySetting
	exchange *exchange.Exchange
	// base is the address of the model, to which the name of a method is added.
	base   string
	header http.Header
	// upstreams are made once.
	upstreams []*provider.Upstream
	// sealer is who reads the model's signatures: Google does not say that another account, or Vertex AI, does.
	sealer string
	// onVertex means that Vertex AI serves the model.
	onVertex bool
	batch    *provider.BatchSupport
	// files are uploaded before requests that name them; nil if media are within requests, as on Vertex AI.
	files *files
}

var versions = regexp.MustCompile(`^v\d[a-z0-9]*$`)

func (h *host) open(spec provider.Spec) (provider.Provider, error) {
	m := &model{name: name(spec.Model), header: http.Header{}}
	switch service, served, within := strings.Cut(spec.Model, "/"); {
	case within && service == vertex:
		m.name, m.onVertex = name(served), true
	case within:
		return nil, rpcerr.InvalidField("model", "%s/%s: %s is no service of %s; write %s/<model>", Name, spec.Model, service, Name, Name)
	default:
		m.onVertex = h.Vertex.Always
	}
	if err := spec.Arguments(&m.args); err != nil {
		return nil, err
	}
	if !versions.MatchString(cmp.Or(m.args.APIVersion, apiVersion)) {
		return nil, provider.InvalidArguments(errors.New("api_version must be a version such as v1 or v1beta"))
	}
	if err := vertexaccess.CheckPlace(m.args.QuotaProjectID, ""); err != nil {
		return nil, provider.InvalidArguments(fmt.Errorf("quota_project_id: %w", err))
	}
	var err error
	if m.safety, err = safetySettings(m.args.SafetySettings); err != nil {
		return nil, provider.InvalidArguments(err)
	}
	open := h.openOwn
	if m.onVertex {
		open = h.openVertex
	}
	if err := open(m, spec); err != nil {
		return nil, err
	}
	m.sealer = provider.Sealer(format.Name, m.base, spec.Account)
	m.upstreams = []*provider.Upstream{m.exchange.Upstream(m.base, string(m.name), m.authorize)}
	if m.files != nil {
		m.files.refused = m.upstreams[0].Refused
	}
	return m, nil
}

// openOwn gives a model access to Google's own API, with a key or with credentials of Google.
func (h *host) openOwn(m *model, spec provider.Spec) error {
	switch {
	case m.args.Project != "" || m.args.Location != "":
		return provider.InvalidArguments(errors.New("project and location are for models on Vertex AI: " + Name + "/" + vertex + "/<model>"))
	case m.args.UseADC != nil && *m.args.UseADC && spec.Account != provider.DefaultAccount:
		return provider.InvalidArguments(errors.New("use_adc is for the account " + provider.DefaultAccount))
	}
	accounts := h.accounts
	own := accounts.Named[provider.DefaultAccount]
	byIdentity := h.UseADC && !own.HasKey()
	if asked := m.args.UseADC; asked != nil {
		byIdentity = *asked
	}
	if byIdentity = byIdentity && spec.Account == provider.DefaultAccount; byIdentity {
		own.APIKey, own.Keys, own.KeyOptional = config.Secret{}, nil, true
		accounts.Named = map[string]provider.Account{provider.DefaultAccount: own}
	}
	access, err := accounts.Open(spec)
	if err != nil {
		return err
	}
	client := transport.RedactSecrets(h.http, access.APIKey)
	if byIdentity {
		client = transport.Authorize(h.http, h.tokensOf(&m.args))
	} else if !access.APIKey.IsZero() {
		m.header.Set("X-Goog-Api-Key", access.APIKey.Reveal())
	}
	version := cmp.Or(m.args.APIVersion, apiVersion)
	root := strings.TrimSuffix(access.Endpoint, "/"+version)
	m.base = root + "/" + version + "/models/" + url.PathEscape(string(m.name))
	m.exchange = &exchange.Exchange{Codec: format.Codec{}, HTTP: client, Provider: Name, Quirks: quirks}
	plain := &exchange.Exchange{Codec: format.Codec{}, HTTP: h.http, Provider: Name, Quirks: quirks}
	m.batch = m.batchesOf(root, version, plain, h.maxInline)
	m.files = &files{
		api: root + "/upload/" + version + "/files", stored: root + "/" + version + "/files/", exchange: m.exchange, header: m.header, every: h.readyEvery,
		plain: plain, known: lru.New[[sha256.Size]byte, uploaded](maxFiles),
	}
	return nil
}

// tokensOf are the access tokens of the account `default` for a model's arguments. Models with the same share them.
func (h *host) tokensOf(a *arguments) *accesstoken.Source {
	scopes := a.Scopes
	if len(scopes) == 0 {
		scopes = provider.Texts{googleauth.CloudPlatform}
	}
	project := cmp.Or(a.QuotaProjectID, h.QuotaProject)
	key := strings.Join(append([]string{project}, scopes...), "\n")
	h.mu.Lock()
	defer h.mu.Unlock()
	source, kept := h.tokens.Get(key)
	if !kept {
		owner := googleauth.Owner{
			Provider: Name, Account: provider.DefaultAccount, Hint: "set GOOGLE_APPLICATION_CREDENTIALS, or credentials_file below google in the configuration of modelgw",
		}
		source = googleauth.NewSource(owner, h.Account(), h.http, project, scopes...)
		h.tokens.Put(key, source, 1)
	}
	return source
}

// authorize sets the account's credential on a request, replacing those of a client.
func (m *model) authorize(h http.Header) {
	h.Del("Authorization")
	h.Del("X-Goog-Api-Key")
	maps.Copy(h, m.header)
}

// Listing implements provider.Lister: https://ai.google.dev/api/models. Vertex AI has none of its own models.
func (m *model) Listing() (provider.Listing, bool) {
	list, _, _ := strings.Cut(m.base, "/models/")
	return provider.Listing{URL: list + "/models", Query: "pageSize=1000", Model: string(m.name), HTTP: m.exchange.HTTP, Authorize: m.authorize}, !m.onVertex
}

// thresholds are those of the content filter.
var thresholds = map[string]string{
	"none": "BLOCK_NONE", "only_high": "BLOCK_ONLY_HIGH", "medium_and_above": "BLOCK_MEDIUM_AND_ABOVE", "low_and_above": "BLOCK_LOW_AND_ABOVE",
}

// safetySettings are the settings of all categories. By default nothing is blocked, as evaluations of what models say
// need it.
func safetySettings(given map[string]string) ([]format.SafetySetting, error) {
	categories := []string{"civic_integrity", "dangerous_content", "harassment", "hate_speech", "sexually_explicit"}
	var all []format.SafetySetting
	for _, category := range categories {
		threshold, ok := thresholds[cmp.Or(given[category], "none")]
		if !ok {
			return nil, fmt.Errorf("safety_settings.%s must be one of %s, not %q", category, strings.Join(slices.Sorted(maps.Keys(thresholds)), ", "), given[category])
		}
		all = append(all, format.SafetySetting{Category: "HARM_CATEGORY_" + strings.ToUpper(category), Threshold: threshold})
	}
	for category := range given {
		if !slices.Contains(categories, category) {
			return nil, fmt.Errorf("safety_settings has no category %q; known are %s", category, strings.Join(categories, ", "))
		}
	}
	return all, nil
}

// dropped are options that the API or the model does not have, and that shape no more than how an answer is made.
func (m *model) dropped() []string {
	all := []string{
		"best_of", "prompt_logprobs", "parallel_tool_calls", "internal_tools", "fallback_models", "cache_prompt",
		"effort", "reasoning_mode", "reasoning_summary",
	}
	if !m.name.thinks() {
		all = append(all, "reasoning_effort", "reasoning_tokens")
	}
	return all
}

// Capabilities implements provider.Provider.
func (m *model) Capabilities() provider.Capabilities {
	caps := provider.Capabilities{
		ConnectionKey: m.fullName(),
		LeastEffort:   m.name.leastEffort(),
		UserFirst:     true,
		Ignored:       []string{"logit_bias", "verbosity"},
		Dropped:       m.dropped(),
		ExtraBody:     []string{},
		Features: &modelv1.Capabilities{
			Tools: true, Images: true, Audio: true, Video: true, ToolResultImages: true, ResponseSchema: true, Reasoning: m.name.thinks(), CountTokens: true,
			Streaming: m.args.Streaming == nil || *m.args.Streaming,
			Batch:     true,
		},
		Hosted:    m.hosted(),
		Upstreams: m.upstreams,
		Batch:     m.batch,
		Server:    m.base,
		Sealer:    m.sealer,
	}
	if m.name.wantsSignatures() {
		caps.SignCalls = format.SignCalls
	}
	return caps
}

// Close implements provider.Provider.
func (m *model) Close() error { return nil }
