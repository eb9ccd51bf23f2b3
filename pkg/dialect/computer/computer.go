// Package computer is the platform's tool of a computer for the formats of vendors whose models have one of their own:
// its actions, and calls of an action that are a tool of its own to the model. Which of a vendor's words mean which
// action is in its format.
package computer

import (
	"encoding/json"

	"github.com/evalfleet/evalfleet/pkg/dialect"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
	"github.com/evalfleet/evalfleet/pkg/json/orderedjson"
)

// Action is an action of the platform's tool: the arguments of a call. Places are pixels from the left and from the
// top.
type Action struct {
	Action string `json:"action"`
	Place  []int  `json:"coordinate,omitempty"`
	// Start is where a drag begins.
	Start []int   `json:"start_coordinate,omitempty"`
	Text  *string `json:"text,omitempty"`
	// PressEnter ends a text.
	PressEnter *bool `json:"press_enter,omitempty"`
	// Direction of a scroll, and the clicks of the wheel.
	Direction string `json:"scroll_direction,omitempty"`
	Clicks    int    `json:"scroll_amount,omitempty"`
	// Seconds of a wait.
	Seconds int `json:"duration,omitempty"`
}

// Arguments are the arguments of a call.
func (a Action) Arguments() string { return string(jsonwrite.Marshal(a)) }

// Asked is the action of a call. What cannot be read of it is empty.
func Asked(call *toolv1.ToolCall) (a Action) {
	_ = json.Unmarshal([]byte(dialect.ArgumentsOf(call)), &a)
	return a
}

// memberAction is the argument that names the action.
const memberAction = "action"

// WithAction returns the arguments of a call of the tool for a call of its action, the action first. Input that is no
// JSON object stays.
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

// ActionOf returns the action of a call of the tool, and its input; ok is false if the call names none.
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
