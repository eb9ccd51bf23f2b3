package toolname

import (
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/json/orderedjson"
)

// A set of tools is one tool in the canonical form whose actions are tools of their own to the model, as a computer is
// to some.

// memberAction is the argument that names the action.
const memberAction = "action"

// WithAction returns the arguments of a call of a set for a call of its action, the action first. Input that is no JSON
// object stays.
func WithAction(action, input string) string {
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

// ActionOf returns the action of a call of a set, and its input; ok is false if the call names none.
func ActionOf(call *toolv1.ToolCall) (action, input string, ok bool) {
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
