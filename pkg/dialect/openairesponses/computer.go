package openairesponses

import (
	"encoding/json"
	"math"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/dialect"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonread"
	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
)

// A computer is a tool of the server whose calls have actions of their own, and whose results are screenshots alone:
// https://platform.openai.com/docs/guides/tools-computer-use. A call is one of the platform's tool, with the item beside
// its meaning: it goes back as it came.

const (
	typeComputer       = "computer_call"
	typeComputerResult = "computer_call_output"
	// computerFunction is the platform's tool.
	computerFunction = "computer"
	// wheelPixels is how far a click of the wheel scrolls, in Chromium.
	wheelPixels = 120
	// waitSeconds is how long a wait takes, which has no duration.
	waitSeconds = 1
	// noScreenshot is in the place of a result's screenshot that it lacks: a transparent pixel.
	noScreenshot = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAAC0lEQVR42mNgAAIAAAUAAen63NgAAAAASUVORK5CYII="
)

// clicks are the actions for the buttons of a click.
var clicks = map[string]string{
	"left": "left_click", "right": "right_click", "wheel": "middle_click", "back": "back_click", "forward": "forward_click",
}

// wireAction is an action on the wire.
type wireAction struct {
	Type    string   `json:"type"`
	Button  string   `json:"button"`
	X       int      `json:"x"`
	Y       int      `json:"y"`
	ScrollX float64  `json:"scroll_x"`
	ScrollY float64  `json:"scroll_y"`
	Keys    []string `json:"keys"`
	Text    string   `json:"text"`
	Path    []struct {
		X int `json:"x"`
		Y int `json:"y"`
	} `json:"path"`
}

// action is an action of the platform's tool.
type action struct {
	Action    string  `json:"action"`
	Place     []int   `json:"coordinate,omitempty"`
	Start     []int   `json:"start_coordinate,omitempty"`
	Text      *string `json:"text,omitempty"`
	Direction string  `json:"scroll_direction,omitempty"`
	Clicks    int     `json:"scroll_amount,omitempty"`
	Seconds   int     `json:"duration,omitempty"`
}

// meaning is the action of the platform's tool. One that is not known keeps its name, which the tool refuses to the model.
func (a *wireAction) meaning() action {
	place := []int{a.X, a.Y}
	switch a.Type {
	case "click":
		if click := clicks[a.Button]; click != "" {
			return action{Action: click, Place: place}
		}
		return action{Action: "left_click", Place: place}
	case "double_click":
		return action{Action: "double_click", Place: place}
	case "drag":
		if len(a.Path) < 2 {
			return action{Action: "left_click_drag"}
		}
		from, to := a.Path[0], a.Path[len(a.Path)-1]
		return action{Action: "left_click_drag", Start: []int{from.X, from.Y}, Place: []int{to.X, to.Y}}
	case "keypress":
		return action{Action: "key", Text: new(strings.Join(a.Keys, "+"))}
	case "move":
		return action{Action: "mouse_move", Place: place}
	case "scroll":
		pixels, back, forth := a.ScrollY, "up", "down"
		if math.Abs(a.ScrollX) > math.Abs(a.ScrollY) {
			pixels, back, forth = a.ScrollX, "left", "right"
		}
		scroll := action{Action: "scroll", Place: place, Direction: forth, Clicks: max(1, int(math.Round(math.Abs(pixels)/wheelPixels)))}
		if pixels < 0 {
			scroll.Direction = back
		}
		return scroll
	case "type":
		return action{Action: "type", Text: &a.Text}
	case "wait":
		return action{Action: "wait", Seconds: waitSeconds}
	default:
		return action{Action: a.Type}
	}
}

// computerItem are the members of a call of the computer that have a meaning here.
type computerItem struct {
	Type    string       `json:"type"`
	CallID  string       `json:"call_id"`
	Actions []wireAction `json:"actions"`
	// Action is in the place of Actions with older models.
	Action *wireAction     `json:"action"`
	Checks json.RawMessage `json:"pending_safety_checks"`
}

// readComputer reads a call of the computer; ok is false for any other document.
func readComputer(document string) (c computerItem, ok bool) {
	return c, document != "" && json.Unmarshal([]byte(document), &c) == nil && c.Type == typeComputer && c.CallID != ""
}

// computerCall is the call of the platform's tool for an item; nil if the item is no call of a computer that is whole.
func (i *item) computerCall() *toolv1.ToolCall {
	c, ok := readComputer(string(i.Whole))
	if !ok {
		return nil
	}
	if c.Action != nil && c.Actions == nil {
		c.Actions = []wireAction{*c.Action}
	}
	var called struct {
		Actions []action `json:"actions"`
	}
	called.Actions = make([]action, len(c.Actions))
	for n := range c.Actions {
		called.Actions[n] = c.Actions[n].meaning()
	}
	return &toolv1.ToolCall{
		Id: c.CallID, View: dialect.Confirmation(c.cautions()...), Function: computerFunction, Type: toolv1.ToolCallType_TOOL_CALL_TYPE_FUNCTION, ArgumentsJson: string(jsonwrite.Marshal(called)), InternalJson: string(i.Whole),
	}
}

// cautions are why the server wants the call to be confirmed.
func (c *computerItem) cautions() (reasons []string) {
	var checks []struct {
		Code    string `json:"code"`
		Message string `json:"message"`
	}
	_ = json.Unmarshal(c.Checks, &checks) // What cannot be read is not there.
	for _, check := range checks {
		reasons = append(reasons, strings.TrimSuffix(check.Code+": "+check.Message, ": "))
	}
	return reasons
}

// computer writes a call that the server's computer got, and reports whether it is one. Its result has its checks.
func (e *encoder) computer(call *toolv1.ToolCall) bool {
	if !e.Native[call.GetFunction()].Computer {
		return false
	}
	made, ok := readComputer(call.GetInternalJson())
	if !ok || made.CallID != call.GetId() {
		return false
	}
	if e.checks == nil {
		e.checks = map[string]json.RawMessage{}
	}
	e.checks[call.GetId()] = made.Checks
	e.Body.Raw(call.GetInternalJson())
	return true
}

// computerResult writes the result of such a call, and reports whether it is one: its screenshot. The server has no
// place for a text. What the server wants to be acknowledged is what the platform's own approval of the call has allowed.
func (e *encoder) computerResult(id string, m *modelv1.ChatMessage) bool {
	checks, called := e.checks[id]
	if !called {
		return false
	}
	screenshot := noScreenshot
	for _, part := range m.GetContent().GetList().GetParts() {
		if image, ok := part.GetPart().(*contentv1.Content_Image); ok && m.GetError() == nil {
			screenshot = image.Image.GetMedia().GetUri()
			break
		}
	}
	e.Body.BeginObject()
	e.Body.TextMember("type", typeComputerResult)
	e.Body.TextMember("call_id", id)
	e.Body.TextObjectMember("output", "type", "computer_screenshot", "image_url", screenshot, "detail", "original")
	if jsonread.IsSet(checks) && string(checks) != "[]" {
		e.Body.RawMember("acknowledged_safety_checks", string(checks))
	}
	e.Body.EndObject()
	return true
}
