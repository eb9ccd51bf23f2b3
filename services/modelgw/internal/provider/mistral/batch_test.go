package mistral_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/config"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/mistral"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/providertest"
)

func TestBatches(t *testing.T) {
	t.Parallel()
	providertest.RunBatch(t, providertest.BatchHarness{
		New: func(t *testing.T) (*providertest.BatchVendor, string, provider.Provider) {
			vendor, url := providertest.MistralBatches(t)
			kind, closeIdle := mistral.Kind(mistral.Config{APIKey: config.NewSecret("k"), BaseURL: url})
			t.Cleanup(func() { _ = closeIdle() })
			p, err := kind.Open(provider.Spec{Model: "mistral-large-latest", Account: provider.DefaultAccount, Args: `{"conversation_api": false}`})
			require.NoError(t, err)
			return vendor, url, p
		},
		Path: "/chat/completions", Lines: true, Answer: `{"id":"c1"}`, Refusal: `{"error":{"code":400,"message":"bad"}}`,
	})
}
