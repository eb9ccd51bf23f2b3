package openai

import (
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/batchapi"
)

// batchOf returns the batch API of an account at an address.
func (m *model) batchOf(base string) *provider.BatchSupport {
	return &provider.BatchSupport{
		API:         &batchapi.Files{Client: batchapi.Client{Exchange: &m.client.Exchange, Authorize: m.client.Authorize}, Base: base, Dialect: batchapi.OpenAI},
		MaxRequests: 50_000, MaxBytes: 200 << 20, PriceShare: 0.5, // https://platform.openai.com/docs/guides/batch
	}
}
