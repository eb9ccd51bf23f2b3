package evalserver

import (
	"context"
	"maps"
	"math"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/evalfleet/evalfleet/pkg/chat"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/eval"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/note"
)

// mostNotes bounds the notes that are read to show an evaluation at work.
const mostNotes = 1000

// running returns the runs at work that a query is for, as their rows show them, by their evaluations and in the order in
// which they were made. There are as many as the evaluations may have at once.
func (s *Server) running(ctx context.Context, q journal.Query) (map[string][]*agentv1.Run, error) {
	q.Kind, q.Open, q.Limit = journal.KindRun, true, math.MaxInt32
	rows, err := s.journals.List(ctx, q)
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

// atWork returns runs as the samples that they are for, with what their rows and their open effects say. A run that has
// no slot any more is left out.
func (s *Server) atWork(state *eval.State, runs []*agentv1.Run) []*agentv1.EvalSample {
	latest := map[string]*agentv1.RunNote{}
	for _, n := range note.Latest(s.notes, note.OfEval(state.Eval.GetName()), mostNotes) {
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
		s.observe(r, run, latest[run.GetName()])
		samples = append(samples, r)
	}
	return samples
}

// atWorkByRun returns the samples at work of an evaluation by the names of their runs.
func (s *Server) atWorkByRun(ctx context.Context, state *eval.State) (map[string]*agentv1.EvalSample, error) {
	if state.Ended() {
		return nil, nil
	}
	open, err := s.running(ctx, journal.Query{Parent: state.Eval.GetName()})
	runs := open[state.Eval.GetName()]
	byRun := make(map[string]*agentv1.EvalSample, len(runs))
	for _, sample := range s.atWork(state, runs) {
		byRun[sample.GetRun()] = sample
	}
	return byRun, err
}

// shown is a sample as it is at work, where it is.
func shown(r *agentv1.EvalSample, atWork map[string]*agentv1.EvalSample) *agentv1.EvalSample {
	now := atWork[r.GetRun()]
	if now == nil {
		return r
	}
	now.Id, now.IntegerId = r.GetId(), r.GetIntegerId()
	return now
}

// observe adds to a sample what is known of its run while it is at work.
func (s *Server) observe(r *agentv1.EvalSample, run *agentv1.Run, latest *agentv1.RunNote) {
	if run.GetState() != agentv1.RunState_RUN_STATE_UNSPECIFIED {
		r.State = run.GetState()
	}
	r.Wait, r.Activity = run.GetWait(), run.GetActivity()
	if wait := s.waiting(run.GetName()); wait != nil {
		r.State, r.Wait = agentv1.RunState_RUN_STATE_WAITING, wait
	}
	r.Turns, r.Retries, r.Note = run.GetTurns(), run.GetRetries()+latest.GetNote().GetFailedAttempts(), latest.GetNote()
	r.StartTime, r.WorkingTime, r.SandboxFault = run.GetStartTime(), run.GetWorkingTime(), run.GetSandboxFault()
	r.Usage = nil
	for _, name := range slices.Sorted(maps.Keys(run.GetUsage())) { // In one order, since sums of fractions depend on it.
		r.Usage = chat.AddUsage(r.Usage, run.GetUsage()[name])
	}
}

// ended reports whether nothing of an evaluation can be at work. One that is only checked has no name.
func ended(e *agentv1.Eval) bool { return e.GetName() == "" || e.GetEndTime() != nil }

// now is live with the runs that are at work.
func (s *Server) now(ctx context.Context, e *agentv1.Eval) (*agentv1.Eval, error) {
	if ended(e) {
		return e, nil
	}
	runs, err := s.running(ctx, journal.Query{Parent: e.GetName()})
	if err != nil {
		return nil, err
	}
	return s.live(ctx, e, runs[e.GetName()])
}

// live returns a copy of an evaluation with what only the runs at work know: what they have used so far, how many of
// them wait, and for what.
func (s *Server) live(ctx context.Context, e *agentv1.Eval, runs []*agentv1.Run) (*agentv1.Eval, error) {
	e = proto.CloneOf(e)
	if ended(e) {
		return e, nil
	}
	for _, run := range runs {
		eval.AddUsage(e, run.GetUsage(), run.GetRoleUsage())
	}
	journaled, err := s.journals.Waits(ctx, e.GetName())
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
		p.Waits = append(p.Waits, &agentv1.EvalWait{Reason: w.Reason, Message: wait.GetMessage(), Since: wait.GetSince(), Samples: int32(w.Count)})
	}
	p.Waits = append(p.Waits, s.waits(e.GetName())...)
	for _, wait := range p.GetWaits() {
		p.Waiting += wait.GetSamples()
	}
	return e, nil
}
