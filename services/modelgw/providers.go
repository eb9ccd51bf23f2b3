package modelgw

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/evalfleet/evalfleet/pkg/config"
	"github.com/evalfleet/evalfleet/pkg/resource"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/modeldata"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/anthropic"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/azureauth"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/bedrock"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/bedrockaccess"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/google"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/grok"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/mistral"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/mockllm"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/openai"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/openaicompat"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/sagemaker"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/vertexaccess"
)

// vendor is a provider and its part of the configuration.
type vendor struct {
	name string
	// key is the key of its configuration; empty is the name.
	key string
	// kind returns the provider, and a function that closes what it opened.
	kind func(*Config, *Deps) (provider.Kind, func() error, error)
	// endsCalls means that this function ends calls in flight too; others close idle connections alone.
	endsCalls bool
	// own are the addresses of the account `default`, by the names under which an operator sets them; nil if there are
	// none.
	own func(*Config) map[string]string
	// accounts are the addresses of the further accounts by name, by the key of the accounts; nil if there are none.
	accounts func(*Config) map[string]map[string]string
	// services are the accounts that names of models begin with; nil if accounts are beside them. Then there is no
	// account `default`.
	services func(*Config) []string
}

// ownServices are the services that an operator has named.
func ownServices(c *Config) []string { return slices.Collect(maps.Keys(c.OpenAIAPI.Services)) }

// vendors are the providers, by name. Another one is an entry here and a field of [Config]; known services that speak
// OpenAI's formats are a table of openaicompat.
var vendors = []vendor{
	{
		name: anthropic.Name,
		kind: plain(anthropic.Kind, func(c *Config) anthropic.Config { return c.Anthropic }),
		own: func(c *Config) map[string]string {
			return map[string]string{
				"ANTHROPIC_BASE_URL (modelgw.anthropic.base_url)":                         c.Anthropic.BaseURL,
				"AZUREAI_ANTHROPIC_BASE_URL (modelgw.anthropic.azure.base_url)":           c.Anthropic.Azure.BaseURL,
				"AZURE_ANTHROPIC_BASE_URL (modelgw.anthropic.azure.azure_base_url)":       c.Anthropic.Azure.AzureBaseURL,
				"ANTHROPIC_BEDROCK_BASE_URL (modelgw.anthropic.bedrock.base_url)":         c.Anthropic.Bedrock.BaseURL,
				"BEDROCK_ANTHROPIC_BASE_URL (modelgw.anthropic.bedrock.bedrock_base_url)": c.Anthropic.Bedrock.BedrockBaseURL,
				"ANTHROPIC_VERTEX_BASE_URL (modelgw.anthropic.vertex.base_url)":           c.Anthropic.Vertex.BaseURL,
				"VERTEX_ANTHROPIC_BASE_URL (modelgw.anthropic.vertex.vertex_base_url)":    c.Anthropic.Vertex.VertexBaseURL,
			}
		},
		accounts: func(c *Config) map[string]map[string]string {
			return map[string]map[string]string{
				"anthropic.accounts": bases(c.Anthropic.Accounts, baseURL), "anthropic.azure.accounts": bases(c.Anthropic.Azure.Accounts, azureURL),
				"anthropic.bedrock.accounts": bases(c.Anthropic.Bedrock.Accounts, bedrockURL), "anthropic.vertex.accounts": bases(c.Anthropic.Vertex.Accounts, vertexURL),
			}
		},
	},
	{
		name: bedrock.Name,
		kind: plain(bedrock.Kind, func(c *Config) bedrock.Config { return c.Bedrock }),
		own: func(c *Config) map[string]string {
			return map[string]string{"BEDROCK_BASE_URL (modelgw.bedrock.base_url)": c.Bedrock.BaseURL}
		},
		accounts: func(c *Config) map[string]map[string]string {
			return map[string]map[string]string{"bedrock.accounts": bases(c.Bedrock.Accounts, bedrockURL)}
		},
	},
	{
		name: google.Name,
		kind: plain(google.Kind, func(c *Config) google.Config { return c.Google }),
		own: func(c *Config) map[string]string {
			return map[string]string{
				"GOOGLE_BASE_URL (modelgw.google.base_url)":               c.Google.BaseURL,
				"GOOGLE_VERTEX_BASE_URL (modelgw.google.vertex.base_url)": c.Google.Vertex.BaseURL,
				"VERTEX_BASE_URL (modelgw.google.vertex.vertex_base_url)": c.Google.Vertex.VertexBaseURL,
			}
		},
		accounts: func(c *Config) map[string]map[string]string {
			return map[string]map[string]string{
				"google.accounts":        bases(c.Google.Accounts, baseURL),
				"google.vertex.accounts": bases(c.Google.Vertex.Accounts, func(a google.VertexAccount) string { return a.BaseURL }),
			}
		},
	},
	{
		name: grok.Name, endsCalls: true,
		kind: plain(grok.Kind, func(c *Config) grok.Config { return c.Grok }),
		own: func(c *Config) map[string]string {
			return map[string]string{
				"XAI_BASE_URL (modelgw.grok.base_url)":       grok.WithScheme(c.Grok.BaseURL),
				"GROK_BASE_URL (modelgw.grok.grok_base_url)": grok.WithScheme(c.Grok.GrokBaseURL),
			}
		},
		accounts: func(c *Config) map[string]map[string]string {
			return map[string]map[string]string{"grok.accounts": bases(c.Grok.Accounts, func(a provider.Account) string { return grok.WithScheme(a.BaseURL) })}
		},
	},
	{
		name: mistral.Name,
		kind: plain(mistral.Kind, func(c *Config) mistral.Config { return c.Mistral }),
		own: func(c *Config) map[string]string {
			return map[string]string{
				"MISTRAL_BASE_URL (modelgw.mistral.base_url)":                   c.Mistral.BaseURL,
				"AZUREAI_MISTRAL_BASE_URL (modelgw.mistral.azure.base_url)":     c.Mistral.Azure.BaseURL,
				"AZURE_MISTRAL_BASE_URL (modelgw.mistral.azure.azure_base_url)": c.Mistral.Azure.AzureBaseURL,
			}
		},
		accounts: func(c *Config) map[string]map[string]string {
			return map[string]map[string]string{"mistral.accounts": bases(c.Mistral.Accounts, func(a mistral.Account) string { return a.BaseURL })}
		},
	},
	{
		name: mockllm.Name, endsCalls: true,
		kind: func(c *Config, d *Deps) (provider.Kind, func() error, error) { return mockllm.Kind(c.Mockllm, d.Blobs) },
	},
	{
		name: openai.Name,
		kind: plain(openai.Kind, func(c *Config) openai.Config { return c.OpenAI }),
		own: func(c *Config) map[string]string {
			return map[string]string{
				"OPENAI_BASE_URL (modelgw.openai.base_url)":                   c.OpenAI.BaseURL,
				"AZUREAI_OPENAI_BASE_URL (modelgw.openai.azure.base_url)":     c.OpenAI.Azure.BaseURL,
				"AZURE_OPENAI_BASE_URL (modelgw.openai.azure.azure_base_url)": c.OpenAI.Azure.AzureBaseURL,
				"AZURE_OPENAI_ENDPOINT (modelgw.openai.azure.endpoint)":       c.OpenAI.Azure.Endpoint,
				"BEDROCK_OPENAI_BASE_URL (modelgw.openai.bedrock.base_url)":   c.OpenAI.Bedrock.BaseURL,
				"AWS_BEDROCK_BASE_URL (modelgw.openai.bedrock.aws_base_url)":  c.OpenAI.Bedrock.AWSBaseURL,
			}
		},
		accounts: func(c *Config) map[string]map[string]string {
			return map[string]map[string]string{
				"openai.accounts":         bases(c.OpenAI.Accounts, func(a openai.Account) string { return a.BaseURL }),
				"openai.azure.accounts":   bases(c.OpenAI.Azure.Accounts, azureURL),
				"openai.bedrock.accounts": bases(c.OpenAI.Bedrock.Accounts, bedrockURL),
			}
		},
	},
	{
		name:     openaicompat.Name,
		key:      openaiAPIKey,
		services: ownServices,
		kind:     plain(openaicompat.Kind, func(c *Config) openaicompat.Config { return c.OpenAIAPI }),
		own: func(c *Config) map[string]string {
			return keyed("openai_api.services", bases(c.OpenAIAPI.Services, baseURL))
		},
	},
	{
		name:     openaicompat.RawName,
		key:      openaiAPIKey,
		services: ownServices,
		kind:     plain(openaicompat.RawKind, func(c *Config) openaicompat.Config { return c.OpenAIAPI }),
	},
	{
		name: sagemaker.Name,
		kind: plain(sagemaker.Kind, func(c *Config) sagemaker.Config { return c.SageMaker }),
		own: func(c *Config) map[string]string {
			return map[string]string{"modelgw.sagemaker.base_url": c.SageMaker.BaseURL}
		},
		accounts: func(c *Config) map[string]map[string]string {
			return map[string]map[string]string{"sagemaker.accounts": bases(c.SageMaker.Accounts, func(a sagemaker.Account) string { return a.BaseURL })}
		},
	},
}

// openaiAPIKey is the key of servers of others that speak OpenAI's format.
const openaiAPIKey = "openai_api"

// plain is the kind of a provider that needs nothing but its configuration.
func plain[C any](kind func(C) (provider.Kind, func() error), of func(*Config) C) func(*Config, *Deps) (provider.Kind, func() error, error) {
	return func(c *Config, _ *Deps) (provider.Kind, func() error, error) {
		k, closer := kind(of(c))
		return k, closer, nil
	}
}

// bases are the addresses of accounts by name.
func bases[A any](accounts map[string]A, of func(A) string) map[string]string {
	all := map[string]string{}
	for name, account := range accounts {
		all[name] = of(account)
	}
	return all
}

func baseURL(a provider.Account) string { return a.BaseURL }

// Addresses of accounts in clouds.
func azureURL(a azureauth.Account) string       { return a.BaseURL }
func bedrockURL(a bedrockaccess.Account) string { return a.BaseURL }
func vertexURL(a vertexaccess.Account) string   { return a.BaseURL }

// keyed are the addresses of accounts below a key, by the names under which an operator sets them.
func keyed(key string, addresses map[string]string) map[string]string {
	all := map[string]string{}
	for name, address := range addresses {
		all["modelgw."+key+"."+name+".base_url"] = address
	}
	return all
}

// baseURLs are the base URLs of all accounts, by the names under which an operator sets them.
func (c *Config) baseURLs() map[string]string {
	all := map[string]string{}
	for _, v := range vendors {
		if v.own != nil {
			maps.Copy(all, v.own(c))
		}
		if v.accounts != nil {
			for key, addresses := range v.accounts(c) {
				maps.Copy(all, keyed(key, addresses))
			}
		}
	}
	for name, address := range c.Services.BaseURLs() {
		all["modelgw.services."+name] = address
	}
	for path, key := range config.All[provider.Key](c) {
		all["modelgw."+path+".base_url"] = key.BaseURL
		if strings.HasPrefix(path, grok.Name+".") {
			all["modelgw."+path+".base_url"] = grok.WithScheme(key.BaseURL)
		}
	}
	return all
}

// allowedBaseURLs are the further addresses that requests may name, by their places in the configuration.
func (c *Config) allowedBaseURLs() map[string]string {
	all := map[string]string{}
	for path, addresses := range config.All[[]string](c) {
		if !strings.HasSuffix(path, ".allowed_base_urls") {
			continue
		}
		for i, address := range addresses {
			if strings.HasPrefix(path, grok.Name+".") {
				address = grok.WithScheme(address)
			}
			all[fmt.Sprintf("modelgw.%s[%d]", path, i)] = address
		}
	}
	return all
}

// keyFaults are the errors in the credentials of accounts.
func (c *Config) keyFaults() (faults []error) {
	for path, key := range config.All[provider.Key](c) {
		if err := key.Check(); err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", path, err))
		}
	}
	for path, secret := range config.All[config.Secret](c) {
		isKey := strings.HasSuffix(path, "api_key") || strings.HasSuffix(path, "auth_token")
		if isKey && strings.ContainsFunc(secret.Reveal(), unicode.IsControl) {
			faults = append(faults, fmt.Errorf("%s: has a line break or another character that no header can have", path))
		}
	}
	return append(faults, c.identityFaults()...)
}

// unusedIdentity is the fault of an account that has both keys and an identity.
const unusedIdentity = "has keys, beside which its identity is not used; leave one of them out"

// identityFaults are the errors in identities of further accounts: none is used beside keys. That of an account
// `default` may come from variables of the whole machine: it is passed over, with a warning.
func (c *Config) identityFaults() (faults []error) {
	for _, account := range c.unusedIdentities() {
		if strings.Contains(account, ".accounts.") {
			faults = append(faults, fmt.Errorf("%s: %s", account, unusedIdentity))
		}
	}
	return faults
}

// unusedIdentities are the paths of the accounts whose identities are not used, since they have keys.
func (c *Config) unusedIdentities() (accounts []string) {
	keyed := map[string]bool{}
	for path := range config.All[provider.Key](c) {
		account, _, _ := strings.Cut(path, ".keys[")
		keyed[account] = true
	}
	add := func(path string, identity azureauth.Identity) {
		if account := strings.TrimSuffix(path, ".identity"); keyed[account] && !identity.IsZero() {
			accounts = append(accounts, account)
		}
	}
	for path, identity := range config.All[azureauth.Identity](c) {
		add(path, identity)
	}
	for path, identity := range config.All[azureauth.Default](c) {
		add(path, identity.Identity())
	}
	slices.Sort(accounts)
	return accounts
}

// warnOfIdentities logs what identityFaults passes over.
func (c *Config) warnOfIdentities(ctx context.Context, log *slog.Logger) {
	for _, account := range c.unusedIdentities() {
		log.WarnContext(ctx, "modelgw."+account+" "+unusedIdentity)
	}
}

// modelFaults are the errors in the facts and the names of models, in the fallbacks and in the aliases.
func (c *Config) modelFaults() (faults []error) {
	check := func(key, model string) {
		if _, _, err := provider.SplitName(model); err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", key, err))
		}
	}
	known := func(key, model string) {
		if kind, _, err := provider.SplitName(model); err == nil && !c.hasProvider(kind) {
			faults = append(faults, fmt.Errorf("%s: unknown provider %q of %q; evalfleet models lists the providers", key, kind, model))
		}
	}
	for _, model := range slices.Sorted(maps.Keys(c.Prices)) {
		check("prices", model)
		known("prices", model)
	}
	for _, model := range slices.Sorted(maps.Keys(c.Models)) {
		check("models", model)
		known("models", model)
		if err := c.Models[model].Check(); err != nil {
			faults = append(faults, fmt.Errorf("models.%s.%w", model, err))
		}
	}
	for _, model := range slices.Sorted(maps.Keys(c.Fallbacks)) {
		check("fallbacks", model)
		for _, other := range c.Fallbacks[model] {
			check("fallbacks."+model, other)
			known("fallbacks."+model, other)
			if other == model {
				faults = append(faults, fmt.Errorf("fallbacks.%s: a model cannot be its own fallback", model))
			}
		}
	}
	for _, alias := range slices.Sorted(maps.Keys(c.Endpoints.Aliases)) { // Their form is checked where they are.
		known("endpoints.aliases."+alias, c.Endpoints.Aliases[alias])
	}
	return faults
}

// hasProvider reports whether there is a provider of a name, configured or not.
func (c *Config) hasProvider(name string) bool {
	if slices.ContainsFunc(vendors, func(v vendor) bool { return v.name == name }) {
		return true
	}
	_, known := c.Services.AccountNames()[name]
	return known
}

// accountFaults are the errors for further accounts that have the name of the default one, which would hide them.
func (c *Config) accountFaults() (faults []error) {
	check := func(key string, taken bool) {
		if taken {
			faults = append(faults, fmt.Errorf("%s.%s: the account %s is configured beside accounts, not among them", key, provider.DefaultAccount, provider.DefaultAccount))
		}
	}
	for _, v := range vendors {
		if v.accounts == nil {
			continue
		}
		all := v.accounts(c)
		for _, key := range slices.Sorted(maps.Keys(all)) {
			_, taken := all[key][provider.DefaultAccount]
			check(key, taken)
		}
	}
	for _, service := range slices.Sorted(maps.Keys(c.Services)) {
		_, taken := c.Services[service].Accounts[provider.DefaultAccount]
		check("services."+service+".accounts", taken)
	}
	return faults
}

// accountScopes are the scopes of the accounts that calls may have.
func (c *Config) accountScopes() []string {
	var all []string
	for _, v := range vendors {
		if v.services != nil {
			for _, name := range v.services(c) {
				all = append(all, resource.Account(v.name, name))
			}
			continue
		}
		all = append(all, resource.Account(v.name, provider.DefaultAccount))
		if v.accounts == nil {
			continue
		}
		for _, accounts := range v.accounts(c) {
			for name := range accounts {
				all = append(all, resource.Account(v.name, name))
			}
		}
	}
	for service, accounts := range c.Services.AccountNames() {
		for _, name := range accounts {
			all = append(all, resource.Account(service, name))
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// register adds the providers.
func (s *Service) register(cfg Config, deps Deps) error {
	var kinds []provider.Kind
	s.vendorClosers = map[string]func() error{}
	for _, v := range vendors {
		kind, closer, err := v.kind(&cfg, &deps)
		if err != nil {
			return err
		}
		kinds, s.vendorClosers[v.name] = append(kinds, kind), closer
	}
	known, closeKnown := openaicompat.Kinds(cfg.Services)
	s.vendorClosers[servicesKey] = closeKnown
	for _, kind := range append(kinds, known...) {
		if err := s.registry.Register(kind); err != nil {
			return err
		}
	}
	return nil
}

// Models are the models that a service without configuration knows by name, as `provider/name`, without those that are
// known to be retired.
func Models() []string {
	var models []string
	for _, v := range vendors {
		kind, closer, err := v.kind(&Config{}, &Deps{})
		if err != nil || closer() != nil {
			return nil // Nothing is opened that could fail to close.
		}
		for _, name := range slices.Sorted(slices.Values(modeldata.Default().Current(kind.Name, kind.Models, time.Now()))) {
			models = append(models, kind.Name+"/"+name)
		}
	}
	return models
}
