package server

import (
	"context"
	"slices"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/run"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/turn"
)

// CancelRun ends a run. It answers when the cancel is acknowledged: nothing is under way any more, and no effect of the agent starts.
func (s *Runs) CancelRun(ctx context.Context, r *agentv1.CancelRunRequest) (*agentv1.Run, error) {
	if modes := []string{"", "cancel", "score", "error"}; !slices.Contains(modes, r.GetMode()) {
		return nil, rpcerr.InvalidField("mode", "is %q; want cancel, score or error", r.GetMode())
	}
	command := turn.Command{ID: "cancel", Request: &agentv1.CancelRunRequest{Name: r.GetName(), Reason: r.GetReason(), Mode: r.GetMode()}}
	state, err := s.send(ctx, r.GetName(), r.GetRequestId(), command, func(state *run.State, taken int64) bool {
		return taken > 0 && state.Cancel != nil && state.Cancel.Acknowledged
	})
	if err != nil {
		return nil, err
	}
	return state.View(false), nil
}

// Cancel has runs cancelled, for callers in this process. It returns when that is durable for all of them, and waits for none to end.
func (s *Runs) Cancel(ctx context.Context, runs []string, id, reason string) error {
	return s.deps.Launcher.Cancel(ctx, runs, id, principal(ctx), reason)
}
