package engine

import (
	"context"
	"slices"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/pkg/retry"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/engine/effects"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/run"
)

// reconcile makes every open intent pending, and stops the open effects of a run that stops.
func (a *actor) reconcile() error {
	s, caller := a.state, a.engine.caller
	stopped, going := stops(s)
	for _, i := range s.Open {
		if !journal.Intent(i.Event) || i.Wait != nil {
			continue // an agent, which works by its own effects, or an effect that is repeated after its wait
		}
		key := journal.RequestID(i.Event)
		some := stopped[key]
		stopping := len(some) > 0 && !going[key]
		switch p := a.pending[key]; {
		case p == nil:
			e, err := caller.New(s, i)
			if err != nil {
				return err
			}
			a.begin(key, e, stopping, some...)
		case stopping:
			p.Stop()
		default:
			p.StopSome(some...)
		}
	}
	if !a.removing || s.Pause != nil {
		return nil
	}
	for environment, box := range s.Sandboxes {
		if key := "remove/" + environment; !box.Removed && a.pending[key] == nil {
			a.begin(key, caller.Removal(environment, box.Name), false)
		}
	}
	return nil
}

// stops returns the open intents that are to be stopped, by key, and the keys that also have intents that continue.
func stops(s *run.State) (stopped map[string][]int64, going map[string]bool) {
	if !slices.ContainsFunc(s.Open, s.Cuts) {
		return nil, nil
	}
	stopped, going = map[string][]int64{}, map[string]bool{}
	for _, i := range s.Open {
		if key := journal.RequestID(i.Event); s.Cuts(i) {
			stopped[key] = append(stopped[key], i.Seq())
		} else {
			going[key] = true
		}
	}
	return stopped, going
}

func (a *actor) begin(key string, e effects.Effect, stopping bool, stopped ...int64) {
	of := &effectRun{actor: a, head: a.head, lapses: a.lapses}
	a.pending[key] = a.engine.caller.Begin(key, e, of, a.state.Attribution("", "", 0), stopping, stopped...)
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
func (r *effectRun) Lost(epoch int64) { r.actor.post(mail{fenced: true, epoch: epoch}) }

// Queued implements [effects.Run].
func (r *effectRun) Queued(wait *agentv1.RunWait) { r.actor.setQueued(wait) }

// MayAsk implements [effects.Run]. It waits until the replica's beat is up to date. If the beat had lapsed, it checks
// that the replica still owns the run.
func (r *effectRun) MayAsk(ctx context.Context) bool {
	e := r.actor.engine
	for {
		lapses, open := e.deps.Replica.Fence()
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
