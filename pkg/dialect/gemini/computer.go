package gemini

import (
	"encoding/json"
	"math"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
)

// A computer is one tool of the platform whose actions are functions that the server declares itself. Its places are
// thousandths of the screen: https://ai.google.dev/gemini-api/docs/computer-use.

// computerTool offers the server's own functions.
const computerTool = `{"computerUse":{"environment":"ENVIRONMENT_BROWSER"}}`

const (
	// screenWidth and screenHeight are the pixels of the platform's screenshots.
	screenWidth, screenHeight = 1366, 768
	thousand                  = 1000
	// wheelClick is how much of a scroll's magnitude is a click of the wheel; a scroll without a magnitude has scrollClicks,
	// one of a place without a magnitude has scrollMagnitude.
	wheelClick, scrollClicks, scrollMagnitude, mostMagnitude = 100, 3, 800, 999
	// waitSeconds is how long the only wait of the server takes.
	waitSeconds = 5
)

// Functions of the server.
const (
	clickAt         = "click_at"
	hoverAt         = "hover_at"
	typeTextAt      = "type_text_at"
	keyCombination  = "key_combination"
	scrollDocument  = "scroll_document"
	scrollAt        = "scroll_at"
	dragAndDrop     = "drag_and_drop"
	navigate        = "navigate"
	goBack          = "go_back"
	goForward       = "go_forward"
	openBrowser     = "open_web_browser"
	searchEngine    = "search"
	waitFiveSeconds = "wait_5_seconds"
)

// searchPage is the page of a search, which has no address of its own.
const searchPage = "https://www.google.com"

// action is an action of the platform's tool.
type action struct {
	Action      string `json:"action"`
	Coordinate  []int  `json:"coordinate,omitempty"`
	Start       []int  `json:"start_coordinate,omitempty"`
	Text        string `json:"text,omitempty"`
	PressEnter  *bool  `json:"press_enter,omitempty"`
	Direction   string `json:"scroll_direction,omitempty"`
	ScrollBy    int    `json:"scroll_amount,omitempty"`
	WaitSeconds int    `json:"duration,omitempty"`
}

// gesture are the arguments of the server's functions.
type gesture struct {
	X          *float64 `json:"x,omitempty"`
	Y          *float64 `json:"y,omitempty"`
	ToX        *float64 `json:"destination_x,omitempty"`
	ToY        *float64 `json:"destination_y,omitempty"`
	Text       *string  `json:"text,omitempty"`
	PressEnter *bool    `json:"press_enter,omitempty"`
	Keys       string   `json:"keys,omitempty"`
	Direction  string   `json:"direction,omitempty"`
	Magnitude  *float64 `json:"magnitude,omitempty"`
	URL        *string  `json:"url,omitempty"`
	Query      string   `json:"query,omitempty"`
}

// actionOf are the actions for the server's functions.
var actionOf = map[string]func(gesture) action{
	clickAt: func(g gesture) action { return action{Action: "left_click", Coordinate: place(g.X, g.Y)} },
	hoverAt: func(g gesture) action { return action{Action: "mouse_move", Coordinate: place(g.X, g.Y)} },
	typeTextAt: func(g gesture) action {
		enters := g.PressEnter == nil || *g.PressEnter
		return action{Action: "type", Text: or(g.Text, ""), Coordinate: place(g.X, g.Y), PressEnter: &enters}
	},
	keyCombination: func(g gesture) action { return action{Action: "key", Text: translated(g.Keys, keyOf)} },
	scrollDocument: func(g gesture) action {
		return action{Action: "scroll", Direction: g.Direction, ScrollBy: scrollClicks}
	},
	scrollAt: func(g gesture) action {
		return action{Action: "scroll", Coordinate: place(g.X, g.Y), Direction: g.Direction, ScrollBy: max(1, int(or(g.Magnitude, scrollMagnitude))/wheelClick)}
	},
	dragAndDrop: func(g gesture) action {
		return action{Action: "left_click_drag", Start: place(g.X, g.Y), Coordinate: place(g.ToX, g.ToY)}
	},
	navigate:    func(g gesture) action { return action{Action: "navigate", Text: or(g.URL, "")} },
	goBack:      func(gesture) action { return action{Action: "key", Text: "alt+Left"} },
	goForward:   func(gesture) action { return action{Action: "key", Text: "alt+Right"} },
	openBrowser: func(gesture) action { return action{Action: "open_web_browser"} },
	searchEngine: func(g gesture) action {
		if g.Query != "" {
			return action{Action: "navigate", Text: g.Query}
		}
		return action{Action: "navigate", Text: searchPage}
	},
	waitFiveSeconds: func(gesture) action { return action{Action: "wait", WaitSeconds: waitSeconds} },
}

// gestureOf are the server's functions for actions that another model asked for. The others have none: the model sees
// their screenshot after a wait.
func gestureOf(a action) (function string, g gesture) {
	switch a.Action {
	case "left_click":
		g.X, g.Y = thousandths(a.Coordinate)
		return clickAt, g
	case "mouse_move":
		g.X, g.Y = thousandths(a.Coordinate)
		return hoverAt, g
	case "type":
		g.X, g.Y = thousandths(a.Coordinate)
		g.Text, g.PressEnter = &a.Text, a.PressEnter
		return typeTextAt, g
	case "key":
		g.Keys = translated(a.Text, serverKeyOf)
		return keyCombination, g
	case "scroll":
		g.Direction = a.Direction
		if a.Coordinate == nil {
			return scrollDocument, g
		}
		g.X, g.Y = thousandths(a.Coordinate)
		g.Magnitude = new(float64(min(mostMagnitude, wheelClick*a.ScrollBy)))
		return scrollAt, g
	case "left_click_drag":
		g.X, g.Y = thousandths(a.Start)
		g.ToX, g.ToY = thousandths(a.Coordinate)
		return dragAndDrop, g
	case "open_web_browser":
		return openBrowser, g
	case "navigate":
		g.URL = &a.Text
		return navigate, g
	default:
		return waitFiveSeconds, g
	}
}

// place is a place of the screen in pixels, of one in thousandths. One beyond the screen is at its edge.
func place(x, y *float64) []int {
	pixel := func(place *float64, pixels float64) int {
		return int(min(max(math.Round(or(place, 0)/thousand*pixels), 0), pixels-1))
	}
	return []int{pixel(x, screenWidth), pixel(y, screenHeight)}
}

// thousandths is the reverse of place.
func thousandths(pixels []int) (x, y *float64) {
	if len(pixels) < 2 {
		return new(0.0), new(0.0)
	}
	return new(math.Round(float64(pixels[0]) * thousand / screenWidth)), new(math.Round(float64(pixels[1]) * thousand / screenHeight))
}

func or[T any](value *T, absent T) T {
	if value == nil {
		return absent
	}
	return *value
}

// keyOf are the platform's names of keys, by the server's.
var keyOf = map[string]string{
	"enter": "Return", "escape": "Escape", "backspace": "BackSpace", "tab": "Tab", "space": "space", "delete": "Delete", "home": "Home", "end": "End",
	"pageup": "Prior", "pagedown": "Next", "up": "Up", "down": "Down", "left": "Left", "right": "Right", "control": "ctrl", "shift": "shift", "alt": "alt",
}

// serverKeyOf is the reverse, by names in lower case.
var serverKeyOf = func() map[string]string {
	reversed := map[string]string{}
	for server, own := range keyOf {
		reversed[strings.ToLower(own)] = server
	}
	return reversed
}()

// translated are the names of the keys of a combination; one that is not known stays.
func translated(keys string, names map[string]string) string {
	parts := strings.Split(keys, "+")
	for i, key := range parts {
		key = strings.TrimSpace(key)
		if name, known := names[strings.ToLower(key)]; known {
			key = name
		}
		parts[i] = key
	}
	return strings.Join(parts, "+")
}

// original is a call as the server made it, in the canonical call beside its meaning.
type original struct {
	Name string          `json:"name"`
	Args json.RawMessage `json:"args"`
}

// ComputerCalls turns calls of the server's functions into calls of the tool `name`, in an answer to a request with
// Computer.
func ComputerCalls(m *modelv1.ChatMessage, name string) {
	for _, call := range m.GetToolCalls() {
		if arguments, ok := ComputerAction(call.GetFunction(), call.GetArgumentsJson()); ok {
			call.InternalJson = string(jsonwrite.Marshal(original{call.GetFunction(), json.RawMessage(dialect.ArgumentsOf(call))}))
			call.View = caution(dialect.ArgumentsOf(call))
			call.Function, call.ArgumentsJson, call.ParseError = name, arguments, nil
		}
	}
}

// caution shows why the server wants an action to be confirmed; nil if it does not.
func caution(arguments string) *toolv1.ToolCallContent {
	var said struct {
		Safety struct {
			Decision    string `json:"decision"`
			Explanation string `json:"explanation"`
		} `json:"safety_decision"`
	}
	_ = json.Unmarshal([]byte(arguments), &said) // What cannot be read is not there.
	return dialect.Confirmation(said.Safety.Decision, said.Safety.Explanation)
}

// ComputerAction returns the arguments of the platform's tool for a call of one of the server's functions; ok is false
// for a function that is none of them.
func ComputerAction(function, arguments string) (action string, ok bool) {
	meaning, ok := actionOf[function]
	if !ok {
		return "", false
	}
	var g gesture
	_ = json.Unmarshal([]byte(arguments), &g) // What cannot be read is not there.
	return string(jsonwrite.Marshal(meaning(g))), true
}

// served returns a call of the computer as the server knows it: as it made the call, or for another model's call the
// nearest function.
func served(call *toolv1.ToolCall) (function, arguments string) {
	var made original
	if json.Unmarshal([]byte(call.GetInternalJson()), &made) == nil && actionOf[made.Name] != nil && isObject(string(made.Args)) {
		return made.Name, string(made.Args)
	}
	var asked action
	_ = json.Unmarshal([]byte(dialect.ArgumentsOf(call)), &asked)
	function, g := gestureOf(asked)
	return function, string(jsonwrite.Marshal(g))
}

// computerResult writes the result of an action, with the screenshot in it. The server requires an acknowledgement of
// some actions; the platform's own approval of the call has given it.
func (e *encoder) computerResult(m *modelv1.ChatMessage) {
	id, text := chat.CallID(m), chat.Text(m)
	if failure := m.GetError(); failure != nil {
		text = failure.GetMessage()
	}
	function := e.functions[id]
	if function == "" {
		function = waitFiveSeconds
	}
	e.Body.BeginObject()
	e.Body.BeginObjectMember("functionResponse")
	e.Body.TextUnlessEmpty("id", id)
	e.Body.TextMember("name", function)
	e.Body.TextObjectMember("response", "content", text, "safety_acknowledgement", "true", "url", "")
	e.Body.Key("parts")
	e.Body.BeginList()
	for _, part := range m.GetContent().GetList().GetParts() {
		if part.GetText() == nil {
			e.Body.BeginObject()
			e.userPart(part)
			e.Body.EndObject()
		}
	}
	e.Body.EndList()
	e.Body.EndObject()
	e.Body.EndObject()
}
