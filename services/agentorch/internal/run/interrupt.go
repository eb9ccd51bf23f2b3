package run

import (
	"slices"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
)

// Stop is why an effect is stopped while its run goes on. Its outcome says that it was interrupted, and fails nothing.
type Stop uint8

// The reasons. The zero Stop is none.
const (
	StopCall Stop = iota + 1 // an operator stopped one tool call
	StopTurn                 // the turn of its agent was cut
)

// What an agent was at when its turn was cut, as Interrupted.interrupted says it.
const (
	CutGenerate = agentv1.InterruptedWork_INTERRUPTED_WORK_GENERATE
	CutToolCall = agentv1.InterruptedWork_INTERRUPTED_WORK_TOOL_CALL
	CutNothing  = agentv1.InterruptedWork_INTERRUPTED_WORK_BETWEEN_TURNS
)

// interrupted stops what an agent has under way. Agents that it set to work end.
func (s *State) interrupted(f *Frame, cut *agentv1.Interrupted) {
	if cut.GetInterrupted() == CutNothing {
		return
	}
	for _, i := range s.Open {
		if i.Frame == f && i.Event.GetSandboxIntent() == nil && (i.Outside() || !cut.GetOutside()) {
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

// Stops reports whether the turn of the frame was cut and what it had under way has yet to end.
func (f *Frame) Stops() bool {
	return slices.ContainsFunc(f.run.Open, func(i *Intent) bool { return i.Frame == f && !i.Outside() && i.Stopped == StopTurn })
}
