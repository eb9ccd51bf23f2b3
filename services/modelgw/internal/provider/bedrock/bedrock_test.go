package bedrock_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/evalfleet/evalfleet/pkg/config"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/bedrock"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/providertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	claude45 = "anthropic.claude-sonnet-4-5-20250929-v1:0"
	opus47   = "us.anthropic.claude-opus-4-7-v1"
)

func open(t testing.TB, setup providertest.GoldenSetup) provider.Kind {
	t.Helper()
	var c bedrock.Config
	setup.Load(t, &c, &c.APIKey, &c.BaseURL)
	return kindOf(t, c)
}

func kindOf(t testing.TB, c bedrock.Config) provider.Kind {
	t.Helper()
	kind, closeIdle := bedrock.Kind(c)
	t.Cleanup(func() { _ = closeIdle() })
	return kind
}

// signed is a configuration with an access key, of an API at an address.
func signed(address string) bedrock.Config {
	c := bedrock.Config{BaseURL: address}
	c.AccessKeyID, c.SecretAccessKey, c.SessionToken = config.NewSecret("AKIAIOSFODNN7EXAMPLE"), config.NewSecret("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"), config.NewSecret("session-token-of-the-account")
	c.Region = "us-east-1"
	return c
}

// keyed is a configuration with an API key, whose requests have no time in their headers.
func keyed(address string) bedrock.Config {
	return bedrock.Config{BaseURL: address, APIKey: config.NewSecret("bedrock-api-key-of-the-account")}
}

// opened opens a model whose API is at an address.
func opened(t testing.TB, model, address string) provider.Provider {
	t.Helper()
	p, err := kindOf(t, signed(address)).Open(provider.Spec{Model: model, Account: provider.DefaultAccount})
	require.NoError(t, err)
	return p
}

func TestGoldenRequests(t *testing.T) {
	t.Parallel()
	providertest.Golden(t, "request", []string{"providers/request/bedrock/*.json"}, open)
}

func TestGoldenResponses(t *testing.T) {
	t.Parallel()
	providertest.Golden(t, "response", []string{"providers/response/bedrock/*.json"}, open)
}

func TestSuite(t *testing.T) {
	t.Parallel()
	providertest.Run(t, providertest.Harness{New: func(t *testing.T, answers ...providertest.Answer) provider.Provider {
		return opened(t, claude45, providertest.ConverseServer(t, answers...))
	}})
}

// No option of a configuration is dropped silently.
func TestEveryOptionIsSentOrSaidNotToBe(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		claude45, opus47, "anthropic.claude-opus-4-6-v1", "anthropic.claude-3-5-sonnet-20241022-v2:0", "anthropic.claude-v2:1", "amazon.nova-2-lite-v1:0", "amazon.nova-pro-v1:0",
		"openai.gpt-oss-120b-1:0", "meta.llama3-8b-instruct-v1:0", "mistral.mistral-large-2402-v1:0",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			providertest.Options(t, func(t *testing.T, root string) provider.Provider {
				p, err := kindOf(t, keyed(root)).Open(provider.Spec{Model: name, Account: provider.DefaultAccount})
				require.NoError(t, err)
				return p
			})
		})
	}
}
