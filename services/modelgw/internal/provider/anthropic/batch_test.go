package anthropic_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/config"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/anthropic"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/providertest"
)

func TestBatches(t *testing.T) {
	t.Parallel()
	providertest.RunBatch(t, providertest.BatchHarness{
		New: func(t *testing.T) (*providertest.BatchVendor, string, provider.Provider) {
			vendor, url := providertest.AnthropicBatches(t)
			kind, closeIdle := anthropic.Kind(anthropic.Config{APIKey: config.NewSecret("k"), BaseURL: url, Version: "2023-06-01"})
			t.Cleanup(func() { _ = closeIdle() })
			p, err := kind.Open(provider.Spec{Model: "claude-sonnet-4-5", Account: provider.DefaultAccount})
			require.NoError(t, err)
			return vendor, url, p
		},
		Path: "/v1/messages", Lines: true, Header: http.Header{"Anthropic-Beta": {"one,two"}}, Answer: `{"id":"m1","content":[]}`,
		Refusal: `{"type":"error","error":{"type":"invalid_request_error","message":"bad"}}`,
	})
}
