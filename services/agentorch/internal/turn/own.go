package turn

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
)

// adoptPage is how many runs change hands in one transaction.
const adoptPage = 500

func (e *Engine) beat(ctx context.Context) error {
	return e.deps.Store.Beat(ctx, e.cfg.Replica, time.Now())
}

// adopt takes over the runs of dead replicas, or, at the start, this replica's own.
func (e *Engine) adopt(ctx context.Context, own bool) error {
	reason := "takeover"
	if own {
		reason = "restart"
	}
	a := journal.Adoption{Replica: e.cfg.Replica, Own: own, DeadSince: time.Now().Add(-e.cfg.TTL), Limit: adoptPage}
	for {
		page, err := e.deps.Store.Adopt(ctx, a)
		if err != nil {
			return fmt.Errorf("turn: adopt: %w", err)
		}
		for _, l := range page {
			switch {
			case l.Kind == journal.KindRun:
				e.arm(l, reason)
			case e.deps.AdoptEval != nil:
				e.deps.AdoptEval(l, reason)
			}
			a.After = l.Ref
		}
		if len(page) < adoptPage {
			return nil
		}
	}
}

// arm goes on with an adopted run: at once, or, where it waits, when its time comes. A run that waits is not read for that.
func (e *Engine) arm(l journal.Listed, reason string) {
	a := e.own(l.Head, reason, !l.Waiting)
	if a == nil || !l.Waiting {
		return
	}
	a.boxes, a.subject = parked(l.View)
	a.post(mail{inbox: true, quiet: true})
	if !l.Wake.IsZero() {
		a.setClock(time.Until(l.Wake))
	}
}

// parked reads from a run's view the sandboxes whose leases go on, and what it waits for where that has a name.
func parked(view []byte) (boxes []string, subject string) {
	var r agentv1.Run
	if proto.Unmarshal(view, &r) != nil {
		return nil, ""
	}
	for _, name := range r.GetSandboxes() {
		boxes = append(boxes, name)
	}
	return boxes, r.GetWait().GetSubject()
}
