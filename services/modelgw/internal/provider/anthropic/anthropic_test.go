package anthropic_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/anthropic"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/providertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t testing.TB, setup providertest.GoldenSetup) provider.Kind {
	t.Helper()
	var c anthropic.Config
	setup.Load(t, &c, &c.APIKey, &c.BaseURL)
	kind, closeIdle := anthropic.Kind(c)
	t.Cleanup(func() { _ = closeIdle() })
	return kind
}

func TestGoldenRequests(t *testing.T) {
	t.Parallel()
	providertest.Golden(t, "request", []string{"providers/request/anthropic/*.json"}, open)
}

func TestGoldenResponses(t *testing.T) {
	t.Parallel()
	providertest.Golden(t, "response", []string{"providers/response/anthropic/*.json"}, open)
}

func TestSuite(t *testing.T) {
	t.Parallel()
	providertest.Run(t, providertest.Harness{New: func(t *testing.T, answers ...providertest.Answer) provider.Provider {
		kind := open(t, providertest.GoldenSetup{APIKey: "k", BaseURL: providertest.MessageServer(t, answers...)})
		p, err := kind.Open(provider.Spec{Model: "claude-sonnet-4-5", Account: provider.DefaultAccount})
		require.NoError(t, err)
		return p
	}})
}

// No option of a configuration is passed over without a word.
func TestEveryOptionIsSentOrSaidNotToBe(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"claude-3-haiku-20240307", "claude-3-7-sonnet-latest", "claude-sonnet-4-5", "claude-opus-4-8", "claude-sonnet-5-5"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			providertest.Options(t, func(t *testing.T, answers ...providertest.Answer) provider.Provider {
				kind := open(t, providertest.GoldenSetup{APIKey: "k", BaseURL: providertest.MessageServer(t, answers...)})
				p, err := kind.Open(provider.Spec{Model: name, Account: provider.DefaultAccount})
				require.NoError(t, err)
				return p
			})
		})
	}
}
