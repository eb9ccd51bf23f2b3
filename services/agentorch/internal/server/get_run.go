package server

import (
	"context"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
)

// GetRun gives one run: the fold of its journal.
func (s *Runs) GetRun(ctx context.Context, r *agentv1.GetRunRequest) (*agentv1.Run, error) {
	return s.view(ctx, r.GetName(), r.GetView() == agentv1.RunView_RUN_VIEW_FULL)
}
