package call

import (
	"context"

	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/resource"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/tokens"
)

// CountTokens counts the tokens of a request. No provider counts by itself yet, so every count is an estimate. A model
// whose arguments are invalid counts nothing.
func (c *Calls) CountTokens(ctx context.Context, r *modelv1.CountTokensRequest) (*modelv1.CountTokensResponse, error) {
	project, err := resource.ParseProject("parent", r.GetParent())
	if err != nil {
		return nil, err
	}
	ref := provider.Ref{Project: project, Model: r.GetModel(), Account: r.GetAccount(), Args: r.GetModelArgsJson()}
	if err := c.deps.Registry.Check(ctx, ref); err != nil {
		return nil, err
	}
	return &modelv1.CountTokensResponse{
		MessageTokens: tokens.Messages(r.GetMessages()), ToolTokens: tokens.Tools(r.GetTools()), Estimated: true,
	}, nil
}
