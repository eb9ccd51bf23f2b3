package anthropic_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/evalfleet/evalfleet/pkg/config"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/anthropic"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/providertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t testing.TB, setup providertest.GoldenSetup) provider.Kind {
	t.Helper()
	var c anthropic.Config
	key, baseURL := &c.APIKey, &c.BaseURL
	switch setup.Service {
	case "azure":
		key, baseURL = &c.Azure.APIKey, &c.Azure.BaseURL
	case "bedrock":
		key, baseURL = &c.Bedrock.APIKey, &c.Bedrock.BaseURL
	case "vertex":
		baseURL = &c.Vertex.BaseURL
	}
	setup.Load(t, &c, key, baseURL)
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
	for _, name := range []string{"claude-3-sonnet-20240229", "claude-3-haiku-20240307", "claude-3-7-sonnet-latest", "claude-sonnet-4-5", "claude-opus-4-8", "claude-sonnet-5-5"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			providertest.Options(t, func(t *testing.T, root string) provider.Provider {
				kind := open(t, providertest.GoldenSetup{APIKey: "k", BaseURL: root})
				p, err := kind.Open(provider.Spec{Model: name, Account: provider.DefaultAccount})
				require.NoError(t, err)
				return p
			})
		})
	}
}

// Of options that ask for the same, and of those that a model cannot take, the one that is not sent is named.
func TestWhatGoesBeforeAnOptionIsSaid(t *testing.T) {
	t.Parallel()
	both := &modelv1.GenerateConfig{ReasoningEffort: new("low"), ReasoningTokens: new(int64(2048))}
	efforts := &modelv1.GenerateConfig{ReasoningEffort: new("low"), Effort: new("high")}
	none := &modelv1.GenerateConfig{ReasoningEffort: new("none"), Effort: new("high")}
	for name, tt := range map[string]struct {
		model  string
		config *modelv1.GenerateConfig
		unsent []provider.Unsent
	}{
		"a budget before an effort":       {"claude-sonnet-4-5", both, []provider.Unsent{{Option: "reasoning_effort", Why: "since reasoning_tokens takes precedence"}}},
		"an effort before a budget":       {"claude-opus-4-6", both, []provider.Unsent{{Option: "reasoning_tokens", Why: "since reasoning_effort takes precedence"}}},
		"one effort before another":       {"claude-opus-4-8", efforts, []provider.Unsent{{Option: "effort", Why: "since reasoning_effort takes precedence"}}},
		"two efforts, each with its own":  {"claude-sonnet-4-5", efforts, nil},
		"a model that is told not to":     {"claude-opus-4-8", none, nil},
		"a model that does not by itself": {"claude-sonnet-4-5", none, nil},
		"a model that always reasons":     {"claude-fable-5", none, []provider.Unsent{{Option: "reasoning_effort", Why: "whose reasoning cannot be switched off"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, err := open(t, providertest.GoldenSetup{APIKey: "k"}).Open(provider.Spec{Model: tt.model, Account: provider.DefaultAccount})
			require.NoError(t, err)
			unsent := provider.Fit(p, tt.config).Unsent
			assert.Equal(t, tt.unsent, unsent)
		})
	}
}

// A list of accounts distinguishes those that have a key or a token from those that need none and those that lack one.
func TestWhichAccountsHaveAKey(t *testing.T) {
	t.Parallel()
	key := config.NewSecret("k")
	for name, tt := range map[string]struct {
		config          anthropic.Config
		usable, keyless bool
	}{
		"a key":              {anthropic.Config{APIKey: key}, true, false},
		"a token":            {anthropic.Config{AuthToken: key}, true, false},
		"a key, though none": {anthropic.Config{APIKey: key, KeyOptional: true}, true, false},
		"none needed":        {anthropic.Config{KeyOptional: true}, true, true},
		"none":               {anthropic.Config{}, false, false},
	} {
		kind, closeIdle := anthropic.Kind(tt.config)
		t.Cleanup(func() { _ = closeIdle() })
		account := kind.Accounts[0]
		assert.Equal(t, []bool{tt.usable, tt.keyless}, []bool{account.GetUsable(), account.GetKeyless()}, name)
		assert.Equal(t, !tt.usable, account.GetProblem() != "", name)
	}
}
