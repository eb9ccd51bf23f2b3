package anthropic

import (
	"cmp"
	"maps"

	"github.com/evalfleet/evalfleet/pkg/config"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

const (
	// azurePrefix begins the names of models that Azure serves.
	azurePrefix = "azure/"
	// azureKeyHeader has the key at Azure, beside the header that Anthropic reads.
	azureKeyHeader = "Api-Key"
)

// AzureConfig sets up access to Anthropic's models on Azure. Identities of Azure are not supported, only keys.
type AzureConfig struct {
	// APIKey is the key of the account `default`.
	APIKey config.Secret `yaml:"api_key" env:"AZUREAI_ANTHROPIC_API_KEY"`
	// AzureAPIKey is used if APIKey is not set.
	AzureAPIKey config.Secret `yaml:"azure_api_key" env:"AZURE_ANTHROPIC_API_KEY"`
	// BaseURL is the address of the account `default`, without `/v1`. There is no default.
	BaseURL string `yaml:"base_url" env:"AZUREAI_ANTHROPIC_BASE_URL"`
	// AzureBaseURL is used if BaseURL is not set.
	AzureBaseURL string `yaml:"azure_base_url" env:"AZURE_ANTHROPIC_BASE_URL"`
	// AllowedBaseURLs are further addresses that requests with the account `default` may use, with the paths below
	// them.
	AllowedBaseURLs []string `yaml:"allowed_base_urls" env:"EVALFLEET_MODELGW_ANTHROPIC_AZURE_ALLOWED_BASE_URLS"`
	// Keys are further credentials of the account `default`, among which its conversations are distributed.
	Keys []provider.Key `yaml:"keys"`
	// Accounts are further accounts by name.
	Accounts map[string]provider.Account `yaml:"accounts"`
}

// all are the accounts.
func (c AzureConfig) all() provider.Accounts {
	a := provider.Accounts{Provider: Name + "/azure", Named: map[string]provider.Account{}, KeyHint: func(string) string {
		return "set AZUREAI_ANTHROPIC_API_KEY, or api_key below azure in the configuration of modelgw"
	}}
	maps.Copy(a.Named, c.Accounts)
	a.Named[provider.DefaultAccount] = provider.Account{
		APIKey: cmp.Or(c.APIKey, c.AzureAPIKey), BaseURL: cmp.Or(c.BaseURL, c.AzureBaseURL), AllowedBaseURLs: c.AllowedBaseURLs, Keys: c.Keys,
	}
	return a
}

// fullName is the model's name with its service, which has quotas of its own.
func (m *model) fullName() string {
	if m.onAzure {
		return azurePrefix + string(m.name)
	}
	return string(m.name)
}
