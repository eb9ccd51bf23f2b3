package openaicompat_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/config"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
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

// An answer that is made of a server's words for a full context bears the whole name of its model.
func TestAFullContextInAServersOwnWords(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = fmt.Fprint(w, `{"error":{"message":"input length 9000 is over the limit"}}`)
	}))
	t.Cleanup(server.Close)
	kind := open(t, providertest.GoldenSetup{APIKey: "k", Service: "acme", BaseURL: server.URL})
	for _, args := range []string{"", `{"responses_api": true}`} {
		p, err := kind.Open(provider.Spec{Model: "acme/river/7b", Account: provider.DefaultAccount, Args: args})
		require.NoError(t, err)
		response, err := p.Generate(t.Context(), &provider.Request{Config: &modelv1.GenerateConfig{}})
		require.NoError(t, err)
		assert.Equal(t, "acme/river/7b", response.Output.GetModel())
		assert.Equal(t, "acme/river/7b", chat.FirstMessage(response.Output).GetModel())
		assert.Equal(t, modelv1.StopReason_STOP_REASON_MODEL_LENGTH, response.Output.GetChoices()[0].GetStopReason())
	}
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

// No option of a configuration is passed over without a word.
func TestEveryOptionIsSentOrSaidNotToBe(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"local/some/model", "local/gpt-5"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			providertest.Options(t, func(t *testing.T, root string) provider.Provider {
				kind := open(t, providertest.GoldenSetup{APIKey: "k", Service: "local", BaseURL: root + "/v1"})
				p, err := kind.Open(provider.Spec{Model: name, Account: provider.DefaultAccount})
				require.NoError(t, err)
				return p
			})
		})
	}
}
