package server

import (
	"context"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/pkg/resource"
)

// DeleteRun deletes a run that has ended.
func (s *Runs) DeleteRun(ctx context.Context, r *agentv1.DeleteRunRequest) (*agentv1.DeleteRunResponse, error) {
	if _, err := resource.Parse("name", r.GetName(), "runs"); err != nil {
		return nil, err
	}
	return &agentv1.DeleteRunResponse{}, s.deps.Delete(ctx, r.GetName())
}
