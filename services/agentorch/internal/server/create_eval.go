package server

import (
	"context"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/pkg/resource"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/redact"
)

// CreateEval checks an evaluation and makes it.
func (s *Evals) CreateEval(ctx context.Context, req *agentv1.CreateEvalRequest) (*agentv1.Eval, error) {
	project, err := resource.ParseProject("parent", req.GetParent())
	if err != nil {
		return nil, err
	}
	state, err := s.deps.Engine.Create(ctx, project, req.GetSpec(), req.GetRequestId(), req.GetValidateOnly())
	if err != nil {
		return nil, err
	}
	e, err := s.deps.Live.Eval(ctx, state.Eval)
	return redact.Content(e), err
}
