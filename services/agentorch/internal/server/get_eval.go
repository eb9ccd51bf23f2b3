package server

import (
	"context"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/pkg/resource"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/redact"
)

// GetEval returns an evaluation.
func (s *Evals) GetEval(ctx context.Context, req *agentv1.GetEvalRequest) (*agentv1.Eval, error) {
	if _, err := resource.Parse("name", req.GetName(), "evals"); err != nil {
		return nil, err
	}
	state, err := s.deps.Engine.State(ctx, req.GetName())
	if err != nil {
		return nil, err
	}
	e, err := s.deps.Live.Eval(ctx, state.Eval)
	if err != nil || req.GetContent() {
		return e, err
	}
	return redact.Content(e), nil
}
