package run

import (
	"slices"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
)

// Stop is the reason why an effect is stopped while its run continues. Its outcome is marked as interrupted, and does
// not fail the run.
type Stop uint8

// The reasons. The zero Stop means that the effect is not stopped.
const (
	StopCall Stop = iota + 1 // an operator stopped one tool call
	StopTurn                 // the turn of its agent was cut
)

// The activities of an agent whose turn is cut, as in Interrupted.interrupted.
const (
	CutGenerate = agentv1.InterruptedWork_INTERRUPTED_WORK_GENERATE
	CutToolCall = agentv1.InterruptedWork_INTERRUPTED_WORK_TOOL_CALL
	CutNothing  = agentv1.InterruptedWork_INTERRUPTED_WORK_BETWEEN_TURNS
)

// interrupted stops the open effects of an agent. Agents that it started end.
func (s *State) interrupted(f *Frame, cut *agentv1.Interrupted) {
	if cut.GetInterrupted() == CutNothing {
		return
	}
	for _, i := range f.open {
		if i.Event.GetSandboxIntent() == nil && (i.Outside() || !cut.GetOutside()) {
			i.Stopped = StopTurn
		}
	}
	if cut.GetOutside() {
		return
	}
	for _, child := range s.frames {
		child.Stopped = child.Stopped || child.Parent == f
	}
	if f.Calls != nil {
		f.Calls.Interrupted = true
	}
	if s.Scoring != nil && s.Scoring.Intermediate && s.Scoring.Frame == f {
		s.Scoring = nil
	}
	f.Wait = nil
}

// Stops reports whether the turn of the frame was cut and its open effects have not all ended.
func (f *Frame) Stops() bool {
	return slices.ContainsFunc(f.open, func(i *Intent) bool { return !i.Outside() && i.Stopped == StopTurn })
}
