package engine

import (
	"context"
	"time"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/pkg/retry"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/engine/effects"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
)

// reconcile makes every open intent pending, and has those of a run that stops be stopped.
func (a *actor) reconcile() {
	s, caller := a.state, a.engine.caller
	for _, i := range s.Open {
		if !journal.Intent(i.Event) || i.Wait != nil {
			continue // an agent, which works by its own effects, or what is asked for again when its wait is over
		}
		stopping := s.Cuts(i)
		key := journal.RequestID(i.Event)
		switch p := a.pending[key]; {
		case p == nil:
			a.begin(key, caller.New(s, i), stopping)
		case stopping:
			p.Stop()
		}
	}
	if !a.removing || s.Pause != nil {
		return
	}
	for environment, box := range s.Sandboxes {
		if key := "remove/" + environment; !box.Removed && a.pending[key] == nil {
			a.begin(key, caller.Removal(environment, box.Name), false)
		}
	}
}

func (a *actor) begin(key string, e effects.Effect, stopping bool) {
	run := &effectRun{actor: a, head: a.head, lapses: a.lapses}
	a.pending[key] = a.engine.caller.Begin(key, e, run, a.state.Attribution("", "", 0), stopping)
}

// effectRun is a run as one of its pending effects sees it.
type effectRun struct {
	actor  *actor
	head   journal.Head // as its owner knew it when the effect began
	lapses int          // of the fence, while the run was known to be this replica's
}

// Deliver implements [effects.Run].
func (r *effectRun) Deliver(p *effects.Pending, answer effects.Answer) {
	r.actor.post(mail{pending: p, answer: answer})
}

// Lost implements [effects.Run].
func (r *effectRun) Lost() { r.actor.post(mail{fenced: true}) }

// Queued implements [effects.Run].
func (r *effectRun) Queued(wait *agentv1.RunWait) { r.actor.setQueued(wait) }

// MayAsk implements [effects.Run]. It waits until the replica has beaten in time and, where it had not meanwhile, owns
// the run still.
func (r *effectRun) MayAsk(ctx context.Context) bool {
	e := r.actor.engine
	for {
		lapses, open := e.fence.look(time.Now(), e.cfg.TTL)
		if open && lapses == r.lapses {
			return true
		}
		if open {
			switch mine, err := e.owns(ctx, r.head, nil); {
			case err != nil:
			case mine:
				r.lapses = lapses
				return true
			default:
				r.actor.post(mail{fenced: true})
				return false
			}
		}
		if retry.Sleep(ctx, e.cfg.Beat) != nil {
			return false
		}
	}
}
