// Package live shows evaluations and their samples in their present state: the folds of their journals, with the live
// state of active runs.
package live

import (
	"context"
	"errors"
	"maps"
	"math"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/enum"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/eval"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/progress"
)

// Deps are the sources of a viewer.
type Deps struct {
	Engine   *eval.Engine
	Journals journal.Store
	// Notes holds the progress of open effects.
	Notes *progress.Board
	// Waits returns the waits of an evaluation's runs that no journal records. Waiting does so for one run.
	Waits   func(eval string) []*agentv1.EvalWait
	Waiting func(run string) *agentv1.RunWait
}

// Viewer shows evaluations. Its methods are safe for concurrent use.
type Viewer struct{ deps Deps }

// New returns a viewer.
func New(deps Deps) *Viewer { return &Viewer{deps: deps} }

// Eval returns an evaluation in its present state. It does not change e, the fold of the journal.
func (v *Viewer) Eval(ctx context.Context, e *agentv1.Eval) (*agentv1.Eval, error) {
	if ended(e) {
		return e, nil
	}
	runs, err := v.running(ctx, journal.Query{Parent: e.GetName()})
	if err != nil {
		return nil, err
	}
	return v.live(ctx, e, runs[e.GetName()])
}

// Listed returns evaluations of a project as they are now, of their rows.
func (v *Viewer) Listed(ctx context.Context, project string, rows []journal.Listed) ([]*agentv1.Eval, error) {
	evals := make([]*agentv1.Eval, len(rows))
	for i, row := range rows {
		var err error
		if evals[i], err = v.listed(ctx, row); err != nil {
			return nil, err
		}
	}
	if !slices.ContainsFunc(evals, func(e *agentv1.Eval) bool { return !ended(e) }) {
		return evals, nil
	}
	runs, err := v.running(ctx, journal.Query{Project: project})
	if err != nil {
		return nil, err
	}
	for i, e := range evals {
		if evals[i], err = v.live(ctx, e, runs[e.GetName()]); err != nil {
			return nil, err
		}
	}
	return evals, nil
}

// Progress returns an evaluation in its present state, and up to most of its active samples, those with the oldest runs
// first.
func (v *Viewer) Progress(ctx context.Context, state *eval.State, most int) (*agentv1.Eval, []*agentv1.EvalSample, error) {
	runs, err := v.runsOf(ctx, state)
	if err != nil {
		return nil, nil, err
	}
	e, err := v.live(ctx, state.Eval, runs)
	if err != nil {
		return nil, nil, err
	}
	return e, v.atWork(state, runs[:min(len(runs), most)]), nil
}

// Samples are the samples of an evaluation as they are now.
type Samples struct {
	state   *eval.State
	samples *eval.Samples
	atWork  map[string]*agentv1.EvalSample // by run
}

// Samples returns the samples of an evaluation.
func (v *Viewer) Samples(ctx context.Context, name string) (*Samples, error) {
	state, err := v.deps.Engine.State(ctx, name)
	if err != nil {
		return nil, err
	}
	samples, err := v.deps.Engine.Samples(ctx, state)
	if err != nil {
		return nil, err
	}
	runs, err := v.runsOf(ctx, state)
	if err != nil {
		return nil, err
	}
	s := &Samples{state: state, samples: samples, atWork: make(map[string]*agentv1.EvalSample, len(runs))}
	for _, sample := range v.atWork(state, runs) {
		s.atWork[sample.GetRun()] = sample
	}
	return s, nil
}

// Len is how many samples there are, each of each epoch and model counted.
func (s *Samples) Len() int { return len(s.state.Slots) }

// At returns the sample at a position from 0 to Len-1.
func (s *Samples) At(i int) *agentv1.EvalSample { return s.of(&s.state.Slots[i]) }

// Find returns the sample with an id; nil if there is none.
func (s *Samples) Find(id string) *agentv1.EvalSample {
	slot := s.state.Find(id)
	if slot == nil {
		return nil
	}
	return s.of(slot)
}

// of returns the sample of a slot, with its live state if it is active.
func (s *Samples) of(slot *eval.Slot) *agentv1.EvalSample {
	r := s.state.Resource(slot, s.samples.At(slot.Sample))
	now := s.atWork[r.GetRun()]
	if now == nil {
		return r
	}
	now.Id, now.IntegerId = r.GetId(), r.GetIntegerId()
	return now
}

// runsOf returns the active runs of an evaluation.
func (v *Viewer) runsOf(ctx context.Context, state *eval.State) ([]*agentv1.Run, error) {
	if state.Ended() {
		return nil, nil
	}
	name := state.Eval.GetName()
	runs, err := v.running(ctx, journal.Query{Parent: name})
	return runs[name], err
}

// mostNotes bounds the notes that are read to show an active evaluation.
const mostNotes = 1000

// running returns the active runs of a query from their rows, by evaluation and in the order of creation. Their number
// is bounded by the evaluations' bounds on active samples.
func (v *Viewer) running(ctx context.Context, q journal.Query) (map[string][]*agentv1.Run, error) {
	q.Kind, q.Open, q.Limit = journal.KindRun, true, math.MaxInt32
	rows, err := v.deps.Journals.List(ctx, q)
	if err != nil {
		return nil, err
	}
	runs := map[string][]*agentv1.Run{}
	for _, row := range rows {
		run := &agentv1.Run{}
		if err := proto.Unmarshal(row.View, run); err != nil {
			run = &agentv1.Run{State: agentv1.RunState(row.State)} // The row's other columns are all that is left.
		}
		run.Name = row.Name
		runs[row.Parent] = append(runs[row.Parent], run)
	}
	return runs, nil
}

// atWork returns the samples of active runs, with the state from their rows and their open effects. Runs that no slot
// has any more are left out.
func (v *Viewer) atWork(state *eval.State, runs []*agentv1.Run) []*agentv1.EvalSample {
	latest := map[string]*agentv1.RunNote{}
	for _, n := range progress.Latest(v.deps.Notes, progress.OfEval(state.Eval.GetName()), mostNotes) {
		if latest[n.GetRun()] == nil {
			latest[n.GetRun()] = n
		}
	}
	var samples []*agentv1.EvalSample
	for _, run := range runs {
		slot := state.ByRun(run.GetName())
		if slot == nil || slot.Finished != nil {
			continue
		}
		r := state.Resource(slot, &agentv1.Sample{Id: run.GetSpec().GetAttribution().GetSample()})
		v.observe(r, run, latest[run.GetName()])
		samples = append(samples, r)
	}
	return samples
}

// observe adds the live state of an active run to its sample.
func (v *Viewer) observe(r *agentv1.EvalSample, run *agentv1.Run, latest *agentv1.RunNote) {
	if run.GetState() != agentv1.RunState_RUN_STATE_UNSPECIFIED {
		r.State = run.GetState()
	}
	r.Wait, r.Activity = run.GetWait(), run.GetActivity()
	if wait := v.deps.Waiting(run.GetName()); wait != nil {
		r.State, r.Wait = agentv1.RunState_RUN_STATE_WAITING, wait
	}
	r.Turns, r.Retries, r.Note = run.GetTurns(), run.GetRetries()+latest.GetNote().GetFailedAttempts(), latest.GetNote()
	r.StartTime, r.WorkingTime, r.SandboxFault = run.GetStartTime(), run.GetWorkingTime(), run.GetSandboxFault()
	r.Usage = nil
	for _, name := range slices.Sorted(maps.Keys(run.GetUsage())) { // In one order, since sums of fractions depend on it.
		r.Usage = chat.AddUsage(r.Usage, run.GetUsage()[name])
	}
}

// ended reports whether no run of an evaluation can be active. A mere check has no name.
func ended(e *agentv1.Eval) bool { return e.GetName() == "" || e.GetEndTime() != nil }

// live returns a copy of an evaluation with the live state of its active runs: what they have used so far, how many of
// them wait, and for what.
func (v *Viewer) live(ctx context.Context, e *agentv1.Eval, runs []*agentv1.Run) (*agentv1.Eval, error) {
	e = proto.CloneOf(e)
	if ended(e) {
		return e, nil
	}
	for _, run := range runs {
		eval.AddUsage(e, run.GetUsage(), run.GetRoleUsage())
	}
	journaled, err := v.deps.Journals.Waits(ctx, e.GetName())
	if err != nil {
		return nil, err
	}
	p := e.Progress
	p.Waiting, p.Waits = 0, nil
	for _, w := range journaled {
		longest := &agentv1.Run{}
		if err := proto.Unmarshal(w.View, longest); err != nil {
			longest = &agentv1.Run{} // The reason and the count are all that is left.
		}
		wait := longest.GetWait()
		reason, _ := enum.Parse[agentv1.WaitReason](w.Reason)
		p.Waits = append(p.Waits, &agentv1.EvalWait{Reason: reason, Message: wait.GetMessage(), Since: wait.GetSince(), Samples: int32(w.Count)})
	}
	p.Waits = append(p.Waits, v.deps.Waits(e.GetName())...)
	for _, wait := range p.GetWaits() {
		p.Waiting += wait.GetSamples()
	}
	return e, nil
}

// listed returns an evaluation as its row shows it, or from its journal if the row cannot be read. If the journal
// cannot be read either, it has only the name and the state.
func (v *Viewer) listed(ctx context.Context, row journal.Listed) (*agentv1.Eval, error) {
	e := &agentv1.Eval{}
	if proto.Unmarshal(row.View, e) == nil {
		return e, nil
	}
	state, err := v.deps.Engine.State(ctx, row.Name)
	switch {
	case err == nil:
		return state.Eval, nil
	case errors.Is(err, journal.ErrUnreadable) || rpcerr.Code(err) == codes.NotFound: // deleted in the meantime
		return &agentv1.Eval{Name: row.Name, State: agentv1.EvalState(row.State), Progress: &agentv1.EvalProgress{}}, nil
	}
	return nil, err
}
