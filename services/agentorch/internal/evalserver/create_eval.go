package evalserver

import (
	"context"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/pkg/resource"
)

// CreateEval checks an evaluation and makes it.
func (s *Server) CreateEval(ctx context.Context, req *agentv1.CreateEvalRequest) (*agentv1.Eval, error) {
	project, err := resource.Project("parent", req.GetParent())
	if err != nil {
		return nil, err
	}
	state, err := s.engine.Create(ctx, project, req.GetSpec(), req.GetRequestId(), req.GetValidateOnly())
	if err != nil {
		return nil, err
	}
	return s.now(ctx, state.Eval)
}
