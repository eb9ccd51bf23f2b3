package agent

import (
	"fmt"

	"github.com/evalfleet/evalfleet/pkg/chat"
)

// ToolUse is the policy for the calls that a model makes.
type ToolUse string

// The ways. Empty is UntilDone.
const (
	UntilDone ToolUse = "loop"   // run them and call the model again, until an answer has none
	Once      ToolUse = "single" // run them once
	Never     ToolUse = "none"   // leave them
)

// Loop asks a model and runs the tools that it calls. Machines embed it.
type Loop struct{ Track }

// Next returns the next action of the loop. Over is set if only the action's events are left to do.
func (l *Loop) Next(v View, ask Generate, use ToolUse) (action Action, over bool, err error) {
	switch l.At {
	case AtStart:
		return Action{Then: ask}, false, nil
	case Interrupted:
		return Action{Then: Wait{}}, false, nil
	case Called:
		if use == Once {
			return Action{}, true, nil
		}
		return Action{Then: ask}, false, nil
	case Answered:
		message := chat.FirstMessage(v.Answer())
		action.Events = append(action.Events, Add(message))
		if len(message.GetToolCalls()) > 0 && use != Never {
			action.Then = CallTools{}
			return action, false, nil
		}
		return action, true, nil
	default:
		return Action{}, false, fmt.Errorf("a loop does not score")
	}
}
