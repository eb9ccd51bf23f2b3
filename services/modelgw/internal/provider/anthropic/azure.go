package anthropic

import (
	"cmp"
	"net/http"

	"github.com/evalfleet/evalfleet/pkg/config"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/azureauth"
)

const (
	// azurePrefix begins the names of models that Azure serves.
	azurePrefix = "azure/"
	// azureKeyHeader has the key at Azure, beside the header that Anthropic reads.
	azureKeyHeader = "Api-Key"
)

// AzureConfig sets up access to Anthropic's models on Azure, with a key or with an identity of Entra ID.
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
	// Identity is that of the account `default`; it is used if there is no key.
	Identity azureauth.Default `yaml:"identity"`
	// Keys are further credentials of the account `default`, among which its conversations are distributed.
	Keys []provider.Key `yaml:"keys"`
	// Accounts are further accounts by name.
	Accounts map[string]azureauth.Account `yaml:"accounts"`
}

// all are the accounts.
func (c AzureConfig) all(client *http.Client) azureauth.Accounts {
	named := provider.ByName(c.Accounts, azureauth.Account{Identity: c.Identity.Identity(), Account: provider.Account{
		APIKey: cmp.Or(c.APIKey, c.AzureAPIKey), BaseURL: cmp.Or(c.BaseURL, c.AzureBaseURL), AllowedBaseURLs: c.AllowedBaseURLs, Keys: c.Keys,
	}})
	return azureauth.NewAccounts(provider.Accounts{Provider: Name + "/azure", KeyHint: func(string) string {
		return "set AZUREAI_ANTHROPIC_API_KEY, or api_key or identity below anthropic.azure in the configuration of modelgw"
	}}, named, client)
}

// openAzure gives a model access to Azure.
func (h *host) openAzure(m *model, spec provider.Spec) error {
	access, client, err := h.azure.Open(spec)
	if err != nil {
		return err
	}
	if !access.APIKey.IsZero() {
		m.headers.Set("X-Api-Key", access.APIKey.Reveal())
		m.headers.Set(azureKeyHeader, access.APIKey.Reveal())
	}
	m.connect(access.Endpoint, client)
	return nil
}
