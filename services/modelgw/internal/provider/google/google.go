// Package google is Google's Gemini API, or a server that behaves like it at another address: account, names of models
// and their quirks. The format is pkg/dialect/gemini. Google's models on Vertex, and access without a key, are not
// supported.
package google

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/config"
	format "github.com/evalfleet/evalfleet/pkg/dialect/gemini"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonread"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/exchange"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/transport"
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
	// Keys are further credentials of the account `default`, among which its conversations are distributed.
	Keys []provider.Key `yaml:"keys"`
	// Accounts are further accounts by name.
	Accounts map[string]provider.Account `yaml:"accounts"`
}

// models are the listed names; requests may use any other too.
var models = []string{
	"gemini-2.0-flash", "gemini-2.5-flash", "gemini-2.5-flash-lite", "gemini-2.5-pro", "gemini-3-flash-preview", "gemini-3-pro-preview",
}

// host is shared by instances.
type host struct {
	accounts provider.Accounts
	http     *http.Client
}

// Kind returns the provider. The function that is returned with it closes idle connections.
func Kind(c Config) (provider.Kind, func() error) {
	h := &host{http: transport.NewClient()}
	h.accounts = provider.Accounts{Provider: Name, Named: map[string]provider.Account{}, Vendor: vendor, KeyHint: keyHint}
	maps.Copy(h.accounts.Named, c.Accounts)
	h.accounts.Named[provider.DefaultAccount] = provider.Account{
		APIKey: cmp.Or(c.APIKey, c.GeminiAPIKey), BaseURL: c.BaseURL, AllowedBaseURLs: c.AllowedBaseURLs, KeyOptional: c.KeyOptional, Keys: c.Keys,
	}
	kind := provider.Kind{
		Name:        Name,
		Description: "Google's Gemini API, and servers that behave like it",
		Dialect:     format.Name,
		Models:      models,
		Open:        h.open,
		Accounts:    h.accounts.Usable(),
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
	// The rest is for Vertex, and for credentials other than a key.
	Project        json.RawMessage `json:"project"`
	Location       json.RawMessage `json:"location"`
	UseADC         json.RawMessage `json:"use_adc"`
	Scopes         json.RawMessage `json:"scopes"`
	QuotaProjectID json.RawMessage `json:"quota_project_id"`
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
}

var versions = regexp.MustCompile(`^v\d[a-z0-9]*$`)

func (h *host) open(spec provider.Spec) (provider.Provider, error) {
	switch service, _, within := strings.Cut(spec.Model, "/"); {
	case within && service == "vertex":
		return nil, rpcerr.NotBuiltYet("access to Google's models on Vertex")
	case within:
		return nil, rpcerr.InvalidField("model", "%s/%s: %s is no service of %s; write %s/<model>", Name, spec.Model, service, Name, Name)
	}
	m := &model{name: name(spec.Model)}
	if err := spec.Arguments(&m.args); err != nil {
		return nil, err
	}
	if slices.ContainsFunc([]json.RawMessage{m.args.Project, m.args.Location}, isSet) {
		return nil, rpcerr.NotBuiltYet("access to Google's models on Vertex")
	}
	if slices.ContainsFunc([]json.RawMessage{m.args.UseADC, m.args.Scopes, m.args.QuotaProjectID}, isSet) {
		return nil, rpcerr.NotBuiltYet("access to Google's models without a key")
	}
	version := cmp.Or(m.args.APIVersion, apiVersion)
	if !versions.MatchString(version) {
		return nil, provider.InvalidArguments(errors.New("api_version must be a version such as v1 or v1beta"))
	}
	var err error
	if m.safety, err = safetySettings(m.args.SafetySettings); err != nil {
		return nil, provider.InvalidArguments(err)
	}
	access, err := h.accounts.Open(spec)
	if err != nil {
		return nil, err
	}
	m.base = strings.TrimSuffix(access.Endpoint, "/"+version) + "/" + version + "/models/" + url.PathEscape(spec.Model)
	m.header = http.Header{}
	if !access.APIKey.IsZero() {
		m.header.Set("X-Goog-Api-Key", access.APIKey.Reveal())
	}
	m.exchange = &exchange.Exchange{Codec: format.Codec{}, HTTP: transport.RedactSecrets(h.http, access.APIKey), Provider: Name, Quirks: quirks}
	m.upstreams = []*provider.Upstream{m.exchange.Upstream(m.base, spec.Model, m.authorize)}
	return m, nil
}

// authorize sets the account's credential on a request, replacing those of a client.
func (m *model) authorize(h http.Header) {
	h.Del("Authorization")
	h.Del("X-Goog-Api-Key")
	maps.Copy(h, m.header)
}

// Listing implements provider.Lister: https://ai.google.dev/api/models.
func (m *model) Listing() (provider.Listing, bool) {
	list, _, _ := strings.Cut(m.base, "/models/")
	return provider.Listing{URL: list + "/models", Query: "pageSize=1000", Model: string(m.name), HTTP: m.exchange.HTTP, Authorize: m.authorize}, true
}

// isSet reports whether an argument is given, and not as false or null.
func isSet(argument json.RawMessage) bool {
	return jsonread.IsSet(argument) && string(argument) != "false"
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
	return provider.Capabilities{
		ConnectionKey: string(m.name),
		Ignored:       []string{"logit_bias", "verbosity"},
		Dropped:       m.dropped(),
		ExtraBody:     []string{},
		Features: &modelv1.Capabilities{
			Tools: true, Images: true, Audio: true, Video: true, ToolResultImages: true, ResponseSchema: true, Reasoning: m.name.thinks(), CountTokens: true,
			Streaming: m.args.Streaming == nil || *m.args.Streaming,
		},
		Upstreams: m.upstreams,
	}
}

// Close implements provider.Provider.
func (m *model) Close() error { return nil }
