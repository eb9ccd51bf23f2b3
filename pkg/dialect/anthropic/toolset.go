package anthropic

import (
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/json/orderedjson"
)

// A set of tools is one tool of the platform whose actions are tools of their own on the wire: a call has the action's
// name, and the name of the set beside it:
// https://platform.claude.com/docs/en/agents-and-tools/tool-use/computer-use-tool.

// memberAction is the argument that names the action.
const memberAction = "action"

// setCall is a call of the platform for a call of an action: its arguments have the action first. Input that is no JSON
// object stays.
func setCall(action, input string) string {
	given, err := orderedjson.DecodeObject([]byte(input))
	if err != nil {
		return input
	}
	whole := &orderedjson.Object{}
	whole.Set(memberAction, action)
	for name, value := range given.All() {
		whole.Set(name, value)
	}
	return string(orderedjson.Append(nil, whole))
}

// actionOf is the action of a call of the platform, and its input; ok is false if it names none.
func actionOf(call *toolv1.ToolCall) (action, input string, ok bool) {
	given, err := orderedjson.DecodeObject([]byte(call.GetArgumentsJson()))
	if err != nil {
		return "", "", false
	}
	named, _ := given.Get(memberAction)
	if action, ok = named.(string); !ok || action == "" {
		return "", "", false
	}
	given.Delete(memberAction)
	return action, string(orderedjson.Append(nil, given)), true
}
