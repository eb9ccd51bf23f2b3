package openai

import (
	"cmp"
	"net/http"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/config"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/awsauth"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/bedrockaccess"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/chatapi"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/responsesapi"
)

const (
	// bedrockPrefix begins the names of models that Amazon Bedrock serves.
	bedrockPrefix = "bedrock/"
	// bedrockVendor precedes their names at Bedrock.
	bedrockVendor = "openai."
	// bedrockRegion is the default region, as Inspect has it.
	bedrockRegion = "us-east-2"
)

// BedrockConfig sets up access to OpenAI's models on Amazon Bedrock, which takes keys alone: credentials of AWS make
// short-lived ones.
type BedrockConfig struct {
	// APIKey is a Bedrock API key for the account `default`.
	APIKey config.Secret `yaml:"api_key" env:"BEDROCK_OPENAI_API_KEY"`
	// BearerToken is used if APIKey is not set.
	BearerToken config.Secret `yaml:"bearer_token" env:"AWS_BEARER_TOKEN_BEDROCK"`
	// BaseURL is the address of the account `default`, with `/v1` at its end; default is Bedrock's own in the region.
	BaseURL string `yaml:"base_url" env:"BEDROCK_OPENAI_BASE_URL"`
	// AWSBaseURL is used if BaseURL is not set.
	AWSBaseURL string `yaml:"aws_base_url" env:"AWS_BEDROCK_BASE_URL"`
	// AllowedBaseURLs are further addresses that requests with the account `default` may use, with the paths below
	// them.
	AllowedBaseURLs []string `yaml:"allowed_base_urls" env:"EVALFLEET_MODELGW_OPENAI_BEDROCK_ALLOWED_BASE_URLS"`
	awsauth.Default `yaml:",inline"`
	// Accounts are further accounts by name.
	Accounts map[string]bedrockaccess.Account `yaml:"accounts"`
}

// Validate implements config.Validator.
func (c *BedrockConfig) Validate() error { return bedrockaccess.Check(c.Accounts) }

// all are the accounts.
func (c BedrockConfig) all(client *http.Client) *bedrockaccess.Accounts {
	named := provider.ByName(c.Accounts, bedrockaccess.Account{
		APIKey: cmp.Or(c.APIKey, c.BearerToken), BaseURL: cmp.Or(c.BaseURL, c.AWSBaseURL), AllowedBaseURLs: c.AllowedBaseURLs, Account: c.Account(),
	})
	return bedrockaccess.New(bedrockaccess.API{
		Provider: Name + "/bedrock", Address: mantle("/v1"), Region: bedrockRegion,
		Hint: "set BEDROCK_OPENAI_API_KEY or AWS_BEARER_TOKEN_BEDROCK, or credentials of AWS, or the same below openai.bedrock in the configuration of modelgw",
	}, named, client)
}

// mantle is the address of Bedrock's API in the form of OpenAI's, in a region:
// https://docs.aws.amazon.com/bedrock/latest/userguide/bedrock-mantle.html.
func mantle(path string) func(region string) string {
	return func(region string) string { return "https://bedrock-mantle." + region + ".api.aws" + path }
}

// openBedrock gives a model access to Bedrock. OpenAI's own models have another path there than open ones.
func (h *host) openBedrock(m *model, spec provider.Spec, served string) error {
	if err := awsauth.CheckRegion(m.args.AWSRegion); err != nil {
		return provider.InvalidArguments(err)
	}
	access, err := h.bedrock.Open(spec, m.args.AWSRegion)
	if err != nil {
		return err
	}
	if m.name.generation() >= 5 || m.name.isCodex() {
		access.Address = mantle("/openai/v1")
	}
	endpoint, err := access.Endpoint(access.Region())
	if err != nil {
		return err
	}
	m.served, m.byName, m.noServers = bedrockVendor+strings.TrimPrefix(served, bedrockVendor), true, true
	m.client = chatapi.New(Name, provider.Access{Account: provider.Account{APIKey: access.Key()}, Endpoint: endpoint}, access.BearerClient(), quirks)
	m.connect(endpoint+responsesapi.Path, spec.Account)
	return nil
}
