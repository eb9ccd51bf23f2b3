package decide

import (
	"time"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/run"
)

// Wake returns when a run is to be looked at by the clock; zero means never.
func Wake(s *run.State) time.Time {
	wake := s.Wake()
	if at := overWorkingLimit(s); !at.IsZero() && (wake.IsZero() || at.Before(wake)) {
		wake = at
	}
	for _, f := range s.Frames() {
		if at := f.Deadline(); !at.IsZero() && (wake.IsZero() || at.Before(wake)) {
			wake = at
		}
	}
	return wake
}

// clocks looks at the bounds of time.
func (d *Step) clocks() error {
	s := d.s
	if deadline := s.Deadline(); !deadline.IsZero() && !d.facts.Now.Before(deadline) {
		if s.Judging() {
			if s.Error == nil {
				return d.raise(&agentv1.RunError{Reason: reasonScoringTimeout, Message: "scoring took longer than half of the time limit"})
			}
			return nil
		}
		reached, _ := s.Limits.TimedOut(s.Elapsed(d.facts.Now))
		return d.hit(reached)
	}
	if at := overWorkingLimit(d.s); !at.IsZero() && !d.facts.Now.Before(at) {
		reached, _ := s.Limits.Overworked(s.Working + d.facts.Now.Sub(workingSince(d.s)))
		return d.hit(reached)
	}
	for _, f := range s.Frames() {
		if deadline := f.Deadline(); deadline.IsZero() || d.facts.Now.Before(deadline) || s.Stopping() {
			continue
		}
		if reached, of := f.Late(d.facts.Now); reached != nil {
			if err := d.hitIn(of, reached); err != nil {
				return err
			}
		}
	}
	return nil
}

// overWorkingLimit returns when open effects will reach the limit of working time. A model call never reaches it while
// open: its waiting time is known only when it has ended.
func overWorkingLimit(s *run.State) time.Time {
	since := workingSince(s)
	if since.IsZero() || s.Stopping() || s.StepsDone || s.Uncounted() {
		return time.Time{}
	}
	reached, left := s.Limits.Overworked(s.Working)
	switch {
	case reached != nil:
		return since
	case left < 0:
		return time.Time{}
	}
	return since.Add(left)
}

// workingSince returns when the oldest open effect began; zero if there is none, or if a model call is open.
func workingSince(s *run.State) (since time.Time) {
	for _, i := range s.Open {
		switch i.Event.GetKind().(type) {
		case *agentv1.Event_ModelIntent:
			return time.Time{}
		case *agentv1.Event_ToolIntent, *agentv1.Event_ExecIntent, *agentv1.Event_WorkerIntent:
			if since.IsZero() {
				since = i.Since().Add(i.Away)
			}
		}
	}
	return since
}
