package openai_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/config"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/openai"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/providertest"
)

func TestBatches(t *testing.T) {
	t.Parallel()
	for args, path := range map[string]string{`{"responses_api": false}`: "/chat/completions", `{"responses_api": true}`: "/responses"} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			providertest.RunBatch(t, providertest.BatchHarness{
				New: func(t *testing.T) (*providertest.BatchVendor, string, provider.Provider) {
					vendor, url := providertest.OpenAIBatches(t)
					kind, closeIdle := openai.Kind(openai.Config{APIKey: config.NewSecret("k"), BaseURL: url})
					t.Cleanup(func() { _ = closeIdle() })
					p, err := kind.Open(provider.Spec{Model: "gpt-4o", Account: provider.DefaultAccount, Args: args})
					require.NoError(t, err)
					return vendor, url, p
				},
				Path: path, Lines: true, Answer: `{"id":"c1","choices":[]}`, Refusal: `{"error":{"message":"bad","type":"invalid_request_error"}}`,
			})
		})
	}
}

func TestAzureHasNoBatches(t *testing.T) {
	t.Parallel()
	kind, closeIdle := openai.Kind(openai.Config{Azure: openai.AzureConfig{APIKey: config.NewSecret("k"), BaseURL: "https://x.example"}})
	t.Cleanup(func() { _ = closeIdle() })
	p, err := kind.Open(provider.Spec{Model: "azure/d", Account: provider.DefaultAccount})
	require.NoError(t, err)
	assert.Nil(t, p.Capabilities().Batch)
	assert.False(t, p.Capabilities().Features.GetBatch())
}
