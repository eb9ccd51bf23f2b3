package server

import (
	"context"
	"slices"
	"time"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/run"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/turn"
)

// cancelPatience is how long CancelRun waits for the end of what is under way.
const cancelPatience = 500 * time.Millisecond

// CancelRun ends a run. It answers when the cancel is durable: once nothing is under way any more or, where that takes longer
// than cancelPatience, with the run as one that is being cancelled. No effect of the agent starts after that.
func (s *Runs) CancelRun(ctx context.Context, r *agentv1.CancelRunRequest) (*agentv1.Run, error) {
	if modes := []string{"", "cancel", "score", "error"}; !slices.Contains(modes, r.GetMode()) {
		return nil, rpcerr.InvalidField("mode", "is %q; want cancel, score or error", r.GetMode())
	}
	command := turn.Command{ID: "cancel", Request: &agentv1.CancelRunRequest{Name: r.GetName(), Reason: r.GetReason(), Mode: r.GetMode()}}
	state, err := s.send(ctx, r.GetName(), r.GetRequestId(), command, func(state *run.State, taken int64) bool {
		return taken > 0 && state.Cancel != nil || state.TooNew // What a later version drives takes the command up later.
	})
	if err == nil && !state.Finished {
		err = s.settle(ctx, state)
	}
	if err != nil {
		return nil, err
	}
	view := state.View(false)
	view.Cancelling = !state.Finished
	return view, nil
}

// settle follows a run that is being cancelled until nothing of it is under way, at most for cancelPatience.
func (s *Runs) settle(ctx context.Context, state *run.State) error {
	head, err := s.head(ctx, "name", state.Name)
	if err != nil {
		return err
	}
	wake := s.deps.Store.Subscribe(state.Name)
	defer wake.Close()
	patience := time.NewTimer(cancelPatience)
	defer patience.Stop()
	for {
		if err := s.follow(ctx, head, state); err != nil {
			return err
		}
		if state.Finished || state.Cancel != nil && state.Cancel.Acknowledged {
			return nil
		}
		select {
		case <-wake.C:
		case <-patience.C:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Cancel has runs cancelled, for callers in this process. It returns when that is durable for all of them, and waits for none to end.
func (s *Runs) Cancel(ctx context.Context, runs []string, id, reason string) error {
	return s.deps.Launcher.Cancel(ctx, runs, id, principal(ctx), reason)
}
