package openai

import (
	"cmp"
	"net/http"
	"net/url"

	"github.com/evalfleet/evalfleet/pkg/config"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/azureauth"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/chatapi"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/responsesapi"
)

const (
	// azurePrefix begins the names of models that Azure serves.
	azurePrefix = "azure/"
	// azureVersion is the default version of Azure's API, as Inspect has it.
	azureVersion = "2025-03-01-preview"
)

// AzureConfig sets up access to OpenAI's models on Azure, with a key or with an identity of Entra ID.
type AzureConfig struct {
	// APIKey is the key of the account `default`.
	APIKey config.Secret `yaml:"api_key" env:"AZUREAI_OPENAI_API_KEY"`
	// AzureAPIKey is used if APIKey is not set.
	AzureAPIKey config.Secret `yaml:"azure_api_key" env:"AZURE_OPENAI_API_KEY"`
	// BaseURL is the address of the account `default`, without `/openai`. There is no default.
	BaseURL string `yaml:"base_url" env:"AZUREAI_OPENAI_BASE_URL"`
	// AzureBaseURL is used if BaseURL is not set.
	AzureBaseURL string `yaml:"azure_base_url" env:"AZURE_OPENAI_BASE_URL"`
	// Endpoint is used if neither is set.
	Endpoint string `yaml:"endpoint" env:"AZURE_OPENAI_ENDPOINT"`
	// AllowedBaseURLs are further addresses that requests with the account `default` may use, with the paths below
	// them.
	AllowedBaseURLs []string `yaml:"allowed_base_urls" env:"EVALFLEET_MODELGW_OPENAI_AZURE_ALLOWED_BASE_URLS"`
	// APIVersion is the version of the API. Default 2025-03-01-preview.
	APIVersion string `yaml:"api_version" env:"AZUREAI_OPENAI_API_VERSION"`
	// OpenAIAPIVersion is used if APIVersion is not set.
	OpenAIAPIVersion string `yaml:"openai_api_version" env:"OPENAI_API_VERSION"`
	// Identity is that of the account `default`; it is used if there is no key.
	Identity azureauth.Default `yaml:"identity"`
	// Keys are further credentials of the account `default`, among which its conversations are distributed.
	Keys []provider.Key `yaml:"keys"`
	// Accounts are further accounts by name.
	Accounts map[string]azureauth.Account `yaml:"accounts"`
}

// azure is the access to models on Azure.
type azure struct {
	accounts azureauth.Accounts
	version  string
}

func (c AzureConfig) all(client *http.Client) azure {
	named := provider.ByName(c.Accounts, azureauth.Account{Identity: c.Identity.Identity(), Account: provider.Account{
		APIKey: cmp.Or(c.APIKey, c.AzureAPIKey), BaseURL: cmp.Or(c.BaseURL, c.AzureBaseURL, c.Endpoint), AllowedBaseURLs: c.AllowedBaseURLs, Keys: c.Keys,
	}})
	shared := provider.Accounts{Provider: Name + "/azure", KeyHint: func(string) string {
		return "set AZUREAI_OPENAI_API_KEY, or api_key or identity below openai.azure in the configuration of modelgw"
	}}
	return azure{version: cmp.Or(c.APIVersion, c.OpenAIAPIVersion, azureVersion), accounts: azureauth.NewAccounts(shared, named, client)}
}

// open gives a model access to its deployment. The name of a deployment decides about its API as OpenAI's names do.
func (a *azure) open(m *model, spec provider.Spec, deployment string) error {
	access, client, err := a.accounts.Open(spec)
	if err != nil {
		return err
	}
	root := access.Endpoint + "/openai"
	m.served, m.byName = deployment, true
	m.client = chatapi.New(Name, access, client, quirks)
	m.client.BaseURL = root + "/deployments/" + url.PathEscape(deployment)
	version := "?api-version=" + url.QueryEscape(cmp.Or(m.args.APIVersion, a.version))
	m.client.Path += version
	// Azure takes a bearer token for an identity, which the client sends, and reads keys in a header of its own.
	m.client.Key = config.Secret{}
	if !access.APIKey.IsZero() {
		m.client.Headers = map[string]string{"Api-Key": access.APIKey.Reveal()}
	}
	m.connect(root+responsesapi.Path+version, spec.Account)
	return nil
}
