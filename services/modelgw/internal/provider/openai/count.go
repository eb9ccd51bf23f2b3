package openai

import (
	"context"

	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/exchange"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/responsesapi"
)

// CountTokens implements provider.TokenCounter, for the models that use the Responses API. A server that does not know
// the address, such as Azure's, is asked once.
func (m *model) CountTokens(ctx context.Context, r *provider.Request) (int64, error) {
	if !m.isOfResponses(nil) || m.countsNone.Load() {
		return 0, provider.ErrCountsNone
	}
	if err := m.refuseServers(r); err != nil {
		return 0, err
	}
	r, _ = responsesapi.Renamed(r)
	call := &exchange.Call{
		URL: provider.Below(m.responsesURL, "/input_tokens"), Header: m.client.Header(r), Model: m.served,
	}
	tokens, err := m.responses.Count(ctx, call, m.responsesRequest(r).AppendCount)
	if failure, ok := provider.As(err); ok && responsesapi.LacksAddress(failure) {
		m.countsNone.Store(true)
		return 0, provider.ErrCountsNone
	}
	return tokens, err
}
