package server

import (
	"context"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/pkg/resource"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/mailbox"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/redact"
)

// WaitEval returns an evaluation when it has ended, or in its present state when the time is over.
func (s *Evals) WaitEval(ctx context.Context, req *agentv1.WaitEvalRequest) (*agentv1.Eval, error) {
	if _, err := resource.Parse("name", req.GetName(), "evals"); err != nil {
		return nil, err
	}
	state, err := s.deps.Engine.Wait(ctx, req.GetName(), mailbox.Patience(req.GetTimeout()))
	if err != nil {
		return nil, err
	}
	e, err := s.deps.Live.Eval(ctx, state.Eval)
	return redact.Content(e), err
}
