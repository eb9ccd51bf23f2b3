package server

import (
	"context"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/pkg/resource"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/eval"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/redact"
)

// UpdateEval changes an active evaluation.
func (s *Evals) UpdateEval(ctx context.Context, req *agentv1.UpdateEvalRequest) (*agentv1.Eval, error) {
	if _, err := resource.Parse("eval.name", req.GetEval().GetName(), "evals"); err != nil {
		return nil, err
	}
	changes, err := eval.ParseUpdate(req.GetEval(), req.GetUpdateMask())
	if err != nil {
		return nil, err
	}
	state, err := s.deps.Engine.Update(ctx, req.GetEval().GetName(), changes, req.GetReason(), req.GetEval().GetEtag())
	if err != nil {
		return nil, err
	}
	return redact.Content(state.Eval), nil
}
