package server

import (
	"context"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/pkg/resource"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/mailbox"
)

// WaitRun returns a run when it has ended, or in its present state when the time is over.
func (s *Runs) WaitRun(ctx context.Context, r *agentv1.WaitRunRequest) (*agentv1.Run, error) {
	if _, err := resource.Parse("name", r.GetName(), "runs"); err != nil {
		return nil, err
	}
	return s.deps.Runs.Wait(ctx, r.GetName(), mailbox.Patience(r.GetTimeout()), r.GetView() == agentv1.RunView_RUN_VIEW_FULL)
}
