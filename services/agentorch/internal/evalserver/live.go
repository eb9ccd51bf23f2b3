package evalserver

import (
	"context"
	"slices"

	"google.golang.org/protobuf/proto"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
)

// live returns a copy of an evaluation with what only the runs at work know: which of them wait, and for what.
func (s *Server) live(ctx context.Context, project string, e *agentv1.Eval) (*agentv1.Eval, error) {
	e = proto.CloneOf(e)
	if e.GetName() == "" || e.GetProgress().GetRunning() == 0 {
		return e, nil
	}
	waiting, err := s.journals.List(ctx, journal.Query{
		Project: project, Kind: journal.KindRun, Parent: e.GetName(), States: []int32{int32(agentv1.RunState_RUN_STATE_WAITING)}, Limit: 1000,
	})
	if err != nil {
		return nil, err
	}
	p := e.Progress
	p.Waiting, p.Waits = int32(len(waiting)), nil
	for _, row := range waiting {
		run := &agentv1.Run{}
		if err := proto.Unmarshal(row.View, run); err != nil {
			return nil, err
		}
		addWait(p, run.GetWait())
	}
	for _, wait := range s.waits(e.GetName()) {
		p.Waiting += wait.GetSamples()
		p.Waits = append(p.Waits, wait)
	}
	return e, nil
}

// addWait counts the wait of one run. Those that wait for the same are told together, with the words of the first.
func addWait(p *agentv1.EvalProgress, wait *agentv1.RunWait) {
	i := slices.IndexFunc(p.GetWaits(), func(w *agentv1.EvalWait) bool { return w.GetReason() == wait.GetReason() })
	if i < 0 {
		p.Waits = append(p.Waits, &agentv1.EvalWait{Reason: wait.GetReason(), Message: wait.GetMessage(), Since: wait.GetSince(), Samples: 1})
		return
	}
	all := p.GetWaits()[i]
	all.Samples++
	if wait.GetSince().AsTime().Before(all.GetSince().AsTime()) {
		all.Since = wait.GetSince()
	}
}
