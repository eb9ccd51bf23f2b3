package agent

import (
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
)

// Place is a machine's position: which effect ended last.
type Place uint8

// The places. Next is called at a place, and its action leads to another place, or ends the step.
const (
	AtStart     Place = iota // nothing was done yet
	Answered                 // a model answered; the answer is not in the conversation
	Called                   // the calls of the last assistant message have their results in the conversation
	Scored                   // the scorers judged
	Told                     // a worker decided how to continue
	Interrupted              // the turn was cut, and all effects have ended; an operator's message leads to AtStart
)

// nothing is the value in an Interrupted event that cut no work.
const nothing = agentv1.InterruptedWork_INTERRUPTED_WORK_BETWEEN_TURNS

// Track follows a step's effects. Machines embed it and hand it every event.
type Track struct {
	// At is the place.
	At Place
	// StopReason is that of the last answer.
	StopReason modelv1.StopReason

	// Answer is the last result of a worker, in the JSON form of its kind's result.
	Answer string

	asking     int64 // intent of the model call
	consulting int64 // intent of the worker's call
}

// Asking returns the intent of the last call that the agent made for a turn.
func (t *Track) Asking() int64 { return t.asking }

// Apply follows an event.
func (t *Track) Apply(e *agentv1.Event) {
	switch k := e.GetKind().(type) {
	case *agentv1.Event_ModelIntent:
		if k.ModelIntent.GetPurpose() == PurposeAgent {
			t.asking = e.GetSeq()
		}
	case *agentv1.Event_ModelOutcome:
		if o := k.ModelOutcome; o.GetIntent() == t.asking && o.GetError() == nil && !o.GetInterrupted() {
			t.At, t.StopReason = Answered, o.GetStopReason()
		}
	case *agentv1.Event_ToolsReviewed:
		t.At = Called
	case *agentv1.Event_Interrupted:
		if k.Interrupted.GetInterrupted() != nothing {
			t.At = Interrupted
		}
	case *agentv1.Event_MessageAdded:
		if t.At == Interrupted && k.MessageAdded.GetRole() == modelv1.Role_ROLE_USER {
			t.At = AtStart
		}
	case *agentv1.Event_WorkerOutcome:
		if o := k.WorkerOutcome; t.consulting == o.GetIntent() && o.GetError() == nil && !o.GetInterrupted() {
			t.At, t.Answer = Told, o.GetContent().GetPayloadJson()
		}
	case *agentv1.Event_WorkerIntent:
		if k.WorkerIntent.GetPurpose() == PurposeAgent {
			t.consulting = e.GetSeq()
		}
	case *agentv1.Event_ScoreOutcome:
		if k.ScoreOutcome.GetIntermediate() {
			t.At = Scored
		}
	}
}
