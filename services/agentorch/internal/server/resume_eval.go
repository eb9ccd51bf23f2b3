package server

import (
	"context"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/pkg/resource"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/redact"
)

// ResumeEval continues the unfinished samples of an evaluation.
func (s *Evals) ResumeEval(ctx context.Context, req *agentv1.ResumeEvalRequest) (*agentv1.Eval, error) {
	if _, err := resource.Parse("name", req.GetName(), "evals"); err != nil {
		return nil, err
	}
	state, err := s.deps.Engine.Resume(ctx, req.GetName())
	if err != nil {
		return nil, err
	}
	e, err := s.deps.Live.Eval(ctx, state.Eval)
	return redact.Content(e), err
}
