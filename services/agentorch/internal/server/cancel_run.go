package server

import (
	"context"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
)

// CancelRun ends a run. It answers when the cancel is durable, which may be before the end.
func (s *Runs) CancelRun(ctx context.Context, r *agentv1.CancelRunRequest) (*agentv1.Run, error) {
	request := &agentv1.CancelRunRequest{Name: r.GetName(), Reason: r.GetReason(), Mode: r.GetMode()}
	c, err := command(ctx, "name", r.GetName(), "cancel", r.GetRequestId(), request)
	if err != nil {
		return nil, err
	}
	return s.deps.Runs.Cancel(ctx, c)
}
