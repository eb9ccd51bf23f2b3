package evalserver

import (
	"context"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/pkg/resource"
)

// GetEval gives one evaluation.
func (s *Server) GetEval(ctx context.Context, req *agentv1.GetEvalRequest) (*agentv1.Eval, error) {
	if _, err := resource.Parse("name", req.GetName(), "evals"); err != nil {
		return nil, err
	}
	state, err := s.engine.State(ctx, req.GetName())
	if err != nil {
		return nil, err
	}
	return s.now(ctx, state.Eval)
}
