package server

import (
	"context"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/pkg/resource"
)

// DeleteEval deletes an evaluation that has ended, with its runs.
func (s *Evals) DeleteEval(ctx context.Context, req *agentv1.DeleteEvalRequest) (*agentv1.DeleteEvalResponse, error) {
	if _, err := resource.Parse("name", req.GetName(), "evals"); err != nil {
		return nil, err
	}
	return &agentv1.DeleteEvalResponse{}, s.deps.Delete(ctx, req.GetName())
}
