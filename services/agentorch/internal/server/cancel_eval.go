package server

import (
	"context"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/pkg/resource"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/redact"
)

// CancelEval stops an evaluation.
func (s *Evals) CancelEval(ctx context.Context, req *agentv1.CancelEvalRequest) (*agentv1.Eval, error) {
	if _, err := resource.Parse("name", req.GetName(), "evals"); err != nil {
		return nil, err
	}
	state, err := s.deps.Engine.Cancel(ctx, req.GetName(), req.GetRequestId(), req.GetReason())
	if err != nil {
		return nil, err
	}
	return redact.Content(state.Eval), nil
}
