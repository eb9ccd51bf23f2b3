package openaicompat_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/openaicompat"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/providertest"
)

func TestBatchesOfTogether(t *testing.T) {
	t.Parallel()
	providertest.RunBatch(t, providertest.BatchHarness{
		New: func(t *testing.T) (*providertest.BatchVendor, string, provider.Provider) {
			vendor, url := providertest.TogetherBatches(t)
			return vendor, url, openAt(t, "together", "m", url, "")
		},
		Path: "/chat/completions", Lines: true, Answer: `{"id":"c1"}`, Refusal: `{"error":{"message":"bad"}}`,
	})
}

func TestOtherServicesHaveNoBatches(t *testing.T) {
	t.Parallel()
	for _, name := range openaicompat.Names() {
		if name != "together" {
			assert.Nil(t, openAt(t, name, "m", "https://x.example/v1", "").Capabilities().Batch, name)
		}
	}
}
