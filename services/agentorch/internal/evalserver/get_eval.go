package evalserver

import (
	"context"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/pkg/resource"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
)

// GetEval gives one evaluation.
func (s *Server) GetEval(ctx context.Context, req *agentv1.GetEvalRequest) (*agentv1.Eval, error) {
	name, err := resource.Parse("name", req.GetName(), "evals")
	if err != nil {
		return nil, err
	}
	state, err := s.engine.State(ctx, req.GetName())
	if err != nil {
		return nil, err
	}
	return s.live(ctx, name.Project, state.Eval)
}

// live adds to an evaluation what only the runs at work know: which of them wait.
func (s *Server) live(ctx context.Context, project string, e *agentv1.Eval) (*agentv1.Eval, error) {
	if e.GetName() == "" || e.GetProgress().GetRunning() == 0 {
		return e, nil
	}
	waiting, err := s.journals.List(ctx, journal.Query{
		Project: project, Kind: journal.KindRun, Parent: e.GetName(), States: []int32{int32(agentv1.RunState_RUN_STATE_WAITING)}, Limit: 1000,
	})
	if err != nil {
		return nil, err
	}
	e.Progress.Waiting = int32(len(waiting))
	return e, nil
}
