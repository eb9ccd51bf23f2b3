package decide

import (
	"slices"

	"github.com/evalfleet/evalfleet/pkg/chat"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/toolcall"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/engine/waits"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/run"
)

// The initiators of a cut turn, as in Interrupted.source.
const (
	byOperator = agentv1.InterruptSource_INTERRUPT_SOURCE_USER_CANCEL
	bySystem   = agentv1.InterruptSource_INTERRUPT_SOURCE_SYSTEM
)

var reasonCancelled = rpcerr.ReasonName(errorsv1.ErrorReason_ERROR_REASON_EFFECT_CANCELLED)

// cut returns the event with which an operator cuts the turn of an agent. It has no effect if there is no turn.
func (d *Step) cut(f *run.Frame) *agentv1.Interrupted {
	s, cut := d.s, &agentv1.Interrupted{Source: byOperator, Interrupted: run.CutNothing}
	if s.Stopping() || s.StepsDone || f.Ending() {
		return cut
	}
	for _, i := range f.Effects() {
		if i.Event.GetSandboxIntent() != nil {
			continue
		}
		if i.Event.GetModelIntent() != nil {
			cut.Interrupted, cut.Intent = run.CutGenerate, i.Seq()
			return cut
		}
		if cut.Interrupted = run.CutToolCall; cut.GetCallId() == "" {
			cut.CallId = i.Event.GetToolIntent().GetCallId()
		}
	}
	switch {
	case cut.GetInterrupted() != run.CutNothing:
	case f.Calls != nil && !f.Calls.Interrupted, s.Scoring != nil && s.Scoring.Frame == f:
		cut.Interrupted = run.CutToolCall
	case f.Wait != nil && f.Wait.GetReason() != waits.Input: // It calls a model again when the wait is over.
		cut.Interrupted = run.CutGenerate
	}
	return cut
}

// openCall returns the number of the intent of the call to stop; 0 if the call is not open. A call that was requested
// from outside has no place in a message.
func openCall(s *run.State, f *run.Frame, r *agentv1.CancelCallRequest) int64 {
	if f.Calls != nil {
		for i, c := range f.Calls.All {
			named := c.Call.GetId() == r.GetCallId() && (r.Index == nil || int(r.GetIndex()) == i)
			if named && s.OpenIntent(c.Intent.GetSeq()) != nil {
				return c.Intent.GetSeq()
			}
		}
	}
	for _, i := range f.Effects() {
		if i.Stage != nil && i.Event.GetToolIntent().GetCallId() == r.GetCallId() && r.Index == nil {
			return i.Seq()
		}
	}
	return 0
}

// interrupt turns the answer of a stopped effect into an outcome that is marked as interrupted. A tool call that ended
// before an operator could stop it keeps its result; any other late answer is dropped.
func interrupt(i *run.Intent, e *agentv1.Event) {
	switch k := e.GetKind().(type) {
	case *agentv1.Event_ModelOutcome:
		k.ModelOutcome.Interrupted, k.ModelOutcome.Error = true, uncancelled(k.ModelOutcome.GetError())
	case *agentv1.Event_ExecOutcome:
		k.ExecOutcome.Interrupted, k.ExecOutcome.Error = true, uncancelled(k.ExecOutcome.GetError())
	case *agentv1.Event_WorkerOutcome:
		k.WorkerOutcome.Interrupted, k.WorkerOutcome.Error = true, uncancelled(k.WorkerOutcome.GetError())
	case *agentv1.Event_ToolOutcome:
		interruptCall(i, k.ToolOutcome)
	}
}

func interruptCall(i *run.Intent, o *agentv1.ToolOutcome) {
	result := o.GetContent().GetResult()
	ended := o.GetFailure() == nil && o.GetErrorType() != toolv1.ToolErrorType_TOOL_ERROR_TYPE_CANCELLED
	switch {
	case i.Stopped != run.StopCall || i.Frame.Ending():
		result.Error = toolcall.Interrupted()
	case ended:
		return
	default:
		result.Error, result.Notes = toolcall.TimedOut(), append(result.Notes, toolcall.StoppedNote(o.GetFunction()))
	}
	result.Failure, o.Failure = nil, nil
	o.Interrupted, o.ErrorType = true, result.GetError().GetType()
}

// uncancelled drops an error that only reports that the effect was stopped.
func uncancelled(err *agentv1.RunError) *agentv1.RunError {
	if err.GetReason() == reasonCancelled {
		return nil
	}
	return err
}

// repair gives each call of a cut turn the result that the model sees, once an operator has decided how to continue.
func (d *Step) repair(f *run.Frame) (bool, error) {
	if len(f.Posted) == 0 {
		return d.waitForInput(f)
	}
	all := f.Calls.All
	if reached, of := d.grows(f, len(all)); reached != nil {
		return true, d.hitIn(of, reached)
	}
	for _, c := range all {
		err := toolcall.Interrupted()
		message := &modelv1.ChatMessage{
			Role: modelv1.Role_ROLE_TOOL, ToolCallIds: []string{c.Call.GetId()}, Content: chat.TextContent(err.GetMessage()), Error: err,
		}
		if err := d.emitIn(f, run.NewEvent(&agentv1.MessageAdded{Role: message.GetRole(), Content: message})); err != nil {
			return false, err
		}
	}
	return true, nil
}

// stopOutside stops effects that were requested from outside, since their agent is done. It returns false if there are
// none.
func (d *Step) stopOutside(f *run.Frame) (left bool, err error) {
	left = slices.ContainsFunc(f.Effects(), (*run.Intent).Outside)
	going := slices.ContainsFunc(f.Effects(), func(i *run.Intent) bool { return i.Outside() && i.Stopped == 0 })
	if !going {
		return left, nil
	}
	at := run.CutToolCall
	if slices.ContainsFunc(f.Effects(), func(i *run.Intent) bool { return i.Outside() && i.Event.GetModelIntent() != nil }) {
		at = run.CutGenerate
	}
	return left, d.emitIn(f, run.NewEvent(&agentv1.Interrupted{Source: bySystem, Interrupted: at, Outside: true}))
}
