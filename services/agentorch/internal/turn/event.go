package turn

import agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"

// kind is what an event of the engine's own can be.
type kind interface {
	*agentv1.RunStateChanged | *agentv1.OwnerChanged | *agentv1.RunFinished | *agentv1.StepBegan | *agentv1.StepEnded |
		*agentv1.ModelIntent | *agentv1.ModelOutcome | *agentv1.ToolsReviewed | *agentv1.ToolIntent | *agentv1.ToolOutcome |
		*agentv1.SandboxIntent | *agentv1.SandboxOutcome | *agentv1.SandboxRemoved | *agentv1.ExecIntent | *agentv1.ExecOutcome | *agentv1.WorkerIntent | *agentv1.WorkerOutcome |
		*agentv1.ScoreIntent | *agentv1.ScoreOutcome | *agentv1.LimitHit | *agentv1.LimitsRetuned | *agentv1.ErrorRaised |
		*agentv1.CommandReceived | *agentv1.CancelAcknowledged | *agentv1.Info
}

// event wraps a kind.
func event[K kind](k K) *agentv1.Event {
	e := &agentv1.Event{}
	switch k := any(k).(type) {
	case *agentv1.RunStateChanged:
		e.Kind = &agentv1.Event_RunStateChanged{RunStateChanged: k}
	case *agentv1.OwnerChanged:
		e.Kind = &agentv1.Event_OwnerChanged{OwnerChanged: k}
	case *agentv1.RunFinished:
		e.Kind = &agentv1.Event_RunFinished{RunFinished: k}
	case *agentv1.StepBegan:
		e.Kind = &agentv1.Event_StepBegan{StepBegan: k}
	case *agentv1.StepEnded:
		e.Kind = &agentv1.Event_StepEnded{StepEnded: k}
	case *agentv1.ModelIntent:
		e.Kind = &agentv1.Event_ModelIntent{ModelIntent: k}
	case *agentv1.ModelOutcome:
		e.Kind = &agentv1.Event_ModelOutcome{ModelOutcome: k}
	case *agentv1.ToolsReviewed:
		e.Kind = &agentv1.Event_ToolsReviewed{ToolsReviewed: k}
	case *agentv1.ToolIntent:
		e.Kind = &agentv1.Event_ToolIntent{ToolIntent: k}
	case *agentv1.ToolOutcome:
		e.Kind = &agentv1.Event_ToolOutcome{ToolOutcome: k}
	case *agentv1.SandboxIntent:
		e.Kind = &agentv1.Event_SandboxIntent{SandboxIntent: k}
	case *agentv1.SandboxOutcome:
		e.Kind = &agentv1.Event_SandboxOutcome{SandboxOutcome: k}
	case *agentv1.SandboxRemoved:
		e.Kind = &agentv1.Event_SandboxRemoved{SandboxRemoved: k}
	case *agentv1.ExecIntent:
		e.Kind = &agentv1.Event_ExecIntent{ExecIntent: k}
	case *agentv1.ExecOutcome:
		e.Kind = &agentv1.Event_ExecOutcome{ExecOutcome: k}
	case *agentv1.WorkerIntent:
		e.Kind = &agentv1.Event_WorkerIntent{WorkerIntent: k}
	case *agentv1.WorkerOutcome:
		e.Kind = &agentv1.Event_WorkerOutcome{WorkerOutcome: k}
	case *agentv1.ScoreIntent:
		e.Kind = &agentv1.Event_ScoreIntent{ScoreIntent: k}
	case *agentv1.ScoreOutcome:
		e.Kind = &agentv1.Event_ScoreOutcome{ScoreOutcome: k}
	case *agentv1.LimitHit:
		e.Kind = &agentv1.Event_LimitHit{LimitHit: k}
	case *agentv1.LimitsRetuned:
		e.Kind = &agentv1.Event_LimitsRetuned{LimitsRetuned: k}
	case *agentv1.ErrorRaised:
		e.Kind = &agentv1.Event_ErrorRaised{ErrorRaised: k}
	case *agentv1.CommandReceived:
		e.Kind = &agentv1.Event_CommandReceived{CommandReceived: k}
	case *agentv1.CancelAcknowledged:
		e.Kind = &agentv1.Event_CancelAcknowledged{CancelAcknowledged: k}
	case *agentv1.Info:
		e.Kind = &agentv1.Event_Info{Info: k}
	}
	return e
}
