package evalserver

import (
	"context"
	"fmt"

	"google.golang.org/protobuf/proto"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
)

// live returns a copy of an evaluation with what only the runs at work know: how many of them wait, and for what.
func (s *Server) live(ctx context.Context, e *agentv1.Eval) (*agentv1.Eval, error) {
	e = proto.CloneOf(e)
	if e.GetName() == "" || e.GetEndTime() != nil {
		return e, nil
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
			return nil, fmt.Errorf("read the row of a run of %s: %w", e.GetName(), err)
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
