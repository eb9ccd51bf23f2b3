package openairesponses

import (
	"cmp"
	"encoding/json"
	"math"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/computer"
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

// actions are the platform's actions for those of the server that have another name there.
var actions = map[string]string{"drag": "left_click_drag", "keypress": "key", "move": "mouse_move"}

// meaning is the action of the platform's tool. One that is not known keeps its name, which the tool refuses to the
// model.
func (a *wireAction) meaning() computer.Action {
	m := computer.Action{Action: cmp.Or(actions[a.Type], a.Type)}
	switch a.Type {
	case "click":
		m.Action, m.Place = cmp.Or(clicks[a.Button], clicks["left"]), []int{a.X, a.Y}
	case "double_click", "move":
		m.Place = []int{a.X, a.Y}
	case "drag":
		if last := len(a.Path) - 1; last > 0 {
			m.Start, m.Place = []int{a.Path[0].X, a.Path[0].Y}, []int{a.Path[last].X, a.Path[last].Y}
		}
	case "keypress":
		m.Text = new(strings.Join(a.Keys, "+"))
	case "scroll":
		pixels, directions := a.ScrollY, [...]string{"up", "down"}
		if math.Abs(a.ScrollX) > math.Abs(a.ScrollY) {
			pixels, directions = a.ScrollX, [...]string{"left", "right"}
		}
		m.Place, m.Direction, m.Clicks = []int{a.X, a.Y}, directions[1], max(1, int(math.Round(math.Abs(pixels)/wheelPixels)))
		if pixels < 0 {
			m.Direction = directions[0]
		}
	case "type":
		m.Text = &a.Text
	case "wait":
		m.Seconds = waitSeconds
	}
	return m
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
	meant := make([]computer.Action, len(c.Actions))
	for n := range c.Actions {
		meant[n] = c.Actions[n].meaning()
	}
	call := chat.Call(c.CallID, computerFunction, string(jsonwrite.Marshal(map[string][]computer.Action{"actions": meant})))
	call.View, call.InternalJson = dialect.Confirmation(c.cautions()...), string(i.Whole)
	return call
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
	e.checks[call.GetId()] = made.Checks
	e.Body.Raw(call.GetInternalJson())
	return true
}

// computerResult writes the result of such a call, and reports whether it is one: its screenshot. The server has no
// place for a text. What the server wants to be acknowledged is what the platform's own approval of the call has
// allowed.
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
