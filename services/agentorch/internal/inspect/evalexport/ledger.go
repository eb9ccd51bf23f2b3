package evalexport

import (
	"github.com/evalfleet/evalfleet/pkg/chat"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/eval"
)

// ledger is the fold of an evaluation's journal with the facts that its state drops: earlier attempts, and the usage of
// each model.
type ledger struct {
	state *eval.State
	// place is the position of each run.
	place map[string]place
	// failed are the errors of a place's tries, oldest first.
	failed map[place][]*agentv1.SampleFinished
	// usage and roleUsage are sums over all tries, by the place of the model under evaluation.
	usage, roleUsage map[int]map[string]*modelv1.ModelUsage
}

// place is a sample in an epoch with a model.
type place struct{ sample, epoch, model int }

func newLedger() *ledger {
	return &ledger{
		state: &eval.State{}, place: map[string]place{}, failed: map[place][]*agentv1.SampleFinished{},
		usage: map[int]map[string]*modelv1.ModelUsage{}, roleUsage: map[int]map[string]*modelv1.ModelUsage{},
	}
}

func (l *ledger) apply(e *agentv1.Event) {
	l.state.Apply(e)
	switch k := e.GetKind().(type) {
	case *agentv1.Event_SampleAdmitted:
		a := k.SampleAdmitted
		l.place[a.GetRun()] = place{int(a.GetPosition()), int(a.GetEpoch()), int(a.GetModelIndex())}
	case *agentv1.Event_SampleFinished:
		f := k.SampleFinished
		at, known := l.place[f.GetRun()]
		if !known { // It had no run.
			at = place{int(f.GetPosition()), int(f.GetEpoch()), int(f.GetModelIndex())}
		}
		if f.GetState() == agentv1.RunState_RUN_STATE_FAILED {
			l.failed[at] = append(l.failed[at], f)
		}
		add(l.usage, at.model, f.GetUsage())
		add(l.roleUsage, at.model, f.GetRoleUsage())
	}
}

// retried are the errors of a slot's tries before its last.
func (l *ledger) retried(slot *eval.Slot) []*agentv1.SampleFinished {
	var earlier []*agentv1.SampleFinished
	for _, f := range l.failed[place{slot.Sample, slot.Epoch, slot.Model}] {
		if f.GetRun() != slot.Run {
			earlier = append(earlier, f)
		}
	}
	return earlier
}

func add(to map[int]map[string]*modelv1.ModelUsage, model int, more map[string]*modelv1.ModelUsage) {
	if to[model] == nil {
		to[model] = map[string]*modelv1.ModelUsage{}
	}
	for name, u := range more {
		to[model][name] = chat.AddUsage(to[model][name], u)
	}
}
