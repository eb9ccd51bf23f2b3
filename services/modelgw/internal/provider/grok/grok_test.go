package grok_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/grok"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/providertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t testing.TB, setup providertest.GoldenSetup) provider.Kind {
	t.Helper()
	var c grok.Config
	setup.Load(t, &c, &c.APIKey, &c.BaseURL)
	kind, closeAll := grok.Kind(c)
	t.Cleanup(func() { require.NoError(t, closeAll()) })
	return kind
}

// opened opens a model whose API is at an address.
func opened(t testing.TB, model, address string) provider.Provider {
	t.Helper()
	p, err := open(t, providertest.GoldenSetup{APIKey: "key-of-the-account", BaseURL: address}).Open(provider.Spec{Model: model, Account: provider.DefaultAccount})
	require.NoError(t, err)
	return p
}

func TestGoldenRequests(t *testing.T) {
	t.Parallel()
	providertest.Golden(t, "request", []string{"providers/request/grok/*.json"}, open)
}

func TestGoldenResponses(t *testing.T) {
	t.Parallel()
	providertest.Golden(t, "response", []string{"providers/response/grok/*.json"}, open)
}

func TestSuite(t *testing.T) {
	t.Parallel()
	providertest.Run(t, providertest.Harness{
		New: func(t *testing.T, answers ...providertest.Answer) provider.Provider {
			return opened(t, "grok-4-fast", providertest.XAIServer(t, answers...))
		},
		LacksStatuses: []int{408},
	})
}

// No option of a configuration is dropped silently.
func TestEveryOptionIsSentOrSaidNotToBe(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"grok-2", "grok-3", "grok-3-mini", "grok-4", "grok-4-fast", "sherlock-think"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			providertest.Options(t, func(t *testing.T, root string) provider.Provider { return opened(t, name, root) })
		})
	}
}
