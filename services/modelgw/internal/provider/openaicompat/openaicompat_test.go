package openaicompat_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/evalfleet/evalfleet/pkg/config"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/openaicompat"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/providertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open configures the services that the recorded cases name with what a case says of its account.
func open(t testing.TB, setup providertest.GoldenSetup) provider.Kind {
	t.Helper()
	account := provider.Account{APIKey: config.NewSecret(setup.APIKey), BaseURL: setup.BaseURL}
	kind, closeIdle := openaicompat.Kind(openaicompat.Config{Services: map[string]provider.Account{setup.Service: account}})
	t.Cleanup(func() { _ = closeIdle() })
	return kind
}

func TestGoldenRequests(t *testing.T) {
	t.Parallel()
	providertest.Golden(t, "request", []string{"providers/request/openai-api/*.json"}, open)
}

func TestGoldenResponses(t *testing.T) {
	t.Parallel()
	providertest.Golden(t, "response", []string{"providers/response/openai-api/*.json"}, open)
}

func TestSuite(t *testing.T) {
	t.Parallel()
	providertest.Run(t, providertest.Harness{New: func(t *testing.T, answers ...providertest.Answer) provider.Provider {
		kind := open(t, providertest.GoldenSetup{APIKey: "k", Service: "local", BaseURL: providertest.ChatServer(t, answers...)})
		p, err := kind.Open(provider.Spec{Model: "local/some/model", Account: provider.DefaultAccount})
		require.NoError(t, err)
		return p
	}})
}
