package google_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/config"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/google"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/providertest"
)

func TestBatches(t *testing.T) {
	t.Parallel()
	providertest.RunBatch(t, providertest.BatchHarness{
		New: func(t *testing.T) (*providertest.BatchVendor, string, provider.Provider) {
			vendor, url := providertest.GoogleBatches(t)
			kind, closeIdle := google.Kind(google.Config{APIKey: config.NewSecret("k"), BaseURL: url})
			t.Cleanup(func() { _ = closeIdle() })
			p, err := kind.Open(provider.Spec{Model: "gemini-2.5-flash", Account: provider.DefaultAccount})
			require.NoError(t, err)
			return vendor, url, p
		},
		Path: "/v1beta/models/gemini-2.5-flash:generateContent", Answer: `{"id":"c1"}`, Refusal: `{"error":{"code":400,"message":"bad"}}`,
	})
}
