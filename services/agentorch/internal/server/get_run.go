package server

import (
	"context"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/pkg/resource"
)

// GetRun returns a run, folded from its journal.
func (s *Runs) GetRun(ctx context.Context, r *agentv1.GetRunRequest) (*agentv1.Run, error) {
	if _, err := resource.Parse("name", r.GetName(), "runs"); err != nil {
		return nil, err
	}
	return s.deps.Runs.View(ctx, r.GetName(), r.GetView() == agentv1.RunView_RUN_VIEW_FULL)
}
