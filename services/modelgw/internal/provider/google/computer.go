package google

import (
	"cmp"
	"encoding/json"
	"math"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/computer"
	format "github.com/evalfleet/evalfleet/pkg/dialect/gemini"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonread"
	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

// A computer is one tool of the platform whose actions are functions that the server declares itself, and which are
// like any others in the format. Its places are thousandths of the screen:
// https://ai.google.dev/gemini-api/docs/computer-use.

const (
	// screenWidth and screenHeight are the pixels of the platform's screenshots.
	screenWidth, screenHeight = 1366, 768
	thousand                  = 1000
	// wheelClick is how much of a scroll's magnitude is a click of the wheel; a scroll without a magnitude has
	// scrollClicks, one of a place without a magnitude has scrollMagnitude.
	wheelClick, scrollClicks, scrollMagnitude, mostMagnitude = 100, 3, 800, 999
	// waitSeconds is how long the only wait of the server takes.
	waitSeconds = 5
)

// function is a function of the server.
type function struct {
	name, action string
	has          argumentSet
	// text is the action's, where the arguments say none.
	text string
}

// argumentSet are the arguments that a function has.
type argumentSet uint

const (
	hasPlace argumentSet = 1 << iota
	hasText
	hasKeys
	hasWheel
	hasDrag
	hasAddress
	hasQuery
	hasWait
)

// functions are the functions of the server. Of several for an action, the first is that for another model's calls.
var functions = []function{
	{name: "click_at", action: "left_click", has: hasPlace},
	{name: "hover_at", action: "mouse_move", has: hasPlace},
	{name: "type_text_at", action: "type", has: hasPlace | hasText},
	{name: "key_combination", action: "key", has: hasKeys},
	{name: "go_back", action: "key", text: "alt+Left"},
	{name: "go_forward", action: "key", text: "alt+Right"},
	{name: "scroll_document", action: "scroll", has: hasWheel},
	{name: "scroll_at", action: "scroll", has: hasPlace | hasWheel},
	{name: "drag_and_drop", action: "left_click_drag", has: hasDrag},
	{name: "navigate", action: "navigate", has: hasAddress},
	{name: "search", action: "navigate", has: hasQuery, text: "https://www.google.com"},
	{name: "open_web_browser", action: "open_web_browser"},
	{name: format.WaitFunction, action: "wait", has: hasWait},
}

// functionNamed returns the function with a name; nil for another.
func functionNamed(name string) *function {
	if at := slices.IndexFunc(functions, func(f function) bool { return f.name == name }); at >= 0 {
		return &functions[at]
	}
	return nil
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

// meaning is the action for a call of the function.
func (f *function) meaning(g *gesture) computer.Action {
	a, text := computer.Action{Action: f.action}, f.text
	if f.has&hasPlace != 0 {
		a.Place = pixels(g.X, g.Y)
	}
	switch {
	case f.has&hasText != 0:
		text, a.PressEnter = or(g.Text, ""), new(or(g.PressEnter, true))
	case f.has&hasKeys != 0:
		text = translated(g.Keys, platformKeys)
	case f.has&hasWheel != 0 && a.Place == nil:
		a.Direction, a.Clicks = g.Direction, scrollClicks
	case f.has&hasWheel != 0:
		a.Direction, a.Clicks = g.Direction, max(1, int(or(g.Magnitude, scrollMagnitude))/wheelClick)
	case f.has&hasDrag != 0:
		a.Start, a.Place = pixels(g.X, g.Y), pixels(g.ToX, g.ToY)
	case f.has&hasAddress != 0:
		text = or(g.URL, "")
	case f.has&hasQuery != 0:
		text = cmp.Or(g.Query, f.text)
	case f.has&hasWait != 0:
		a.Seconds = waitSeconds
	}
	if text != "" {
		a.Text = &text
	}
	return a
}

// nearest is the function for an action that another model asked for. For an action that the server has no function for
// it is the one that waits: the model sees the screenshot of its result.
func nearest(a computer.Action) (name string, g gesture) {
	for _, f := range functions {
		if f.action != a.Action || f.has&hasWheel != 0 && (f.has&hasPlace != 0) != (a.Place != nil) {
			continue
		}
		if f.has&hasPlace != 0 {
			g.X, g.Y = thousandths(a.Place)
		}
		switch {
		case f.has&hasText != 0:
			g.Text, g.PressEnter = new(or(a.Text, "")), a.PressEnter
		case f.has&hasKeys != 0:
			g.Keys = translated(or(a.Text, ""), serverKeys)
		case f.has&hasWheel != 0:
			g.Direction = a.Direction
			if a.Place != nil {
				g.Magnitude = new(float64(min(mostMagnitude, wheelClick*a.Clicks)))
			}
		case f.has&hasDrag != 0:
			g.X, g.Y = thousandths(a.Start)
			g.ToX, g.ToY = thousandths(a.Place)
		case f.has&hasAddress != 0:
			g.URL = new(or(a.Text, ""))
		}
		return f.name, g
	}
	return format.WaitFunction, g
}

// pixels is a place of the screen in pixels, of one in thousandths. One beyond the screen is at its edge.
func pixels(x, y *float64) []int {
	along := func(place *float64, pixels float64) int {
		return int(min(max(math.Round(or(place, 0)/thousand*pixels), 0), pixels-1))
	}
	return []int{along(x, screenWidth), along(y, screenHeight)}
}

// thousandths is the reverse of pixels.
func thousandths(place []int) (x, y *float64) {
	if len(place) < 2 {
		return new(0.0), new(0.0)
	}
	return new(math.Round(float64(place[0]) * thousand / screenWidth)), new(math.Round(float64(place[1]) * thousand / screenHeight))
}

func or[T any](value *T, absent T) T {
	if value == nil {
		return absent
	}
	return *value
}

// platformKeys are the platform's names of keys, by the server's.
var platformKeys = map[string]string{
	"enter": "Return", "escape": "Escape", "backspace": "BackSpace", "tab": "Tab", "space": "space", "delete": "Delete", "home": "Home", "end": "End",
	"pageup": "Prior", "pagedown": "Next", "up": "Up", "down": "Down", "left": "Left", "right": "Right", "control": "ctrl", "shift": "shift", "alt": "alt",
}

// serverKeys is the reverse, by names in lower case.
var serverKeys = func() map[string]string {
	reversed := map[string]string{}
	for server, own := range platformKeys {
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

// fromServer turns calls of the server's functions into calls of the tool, in an answer.
func fromServer(m *modelv1.ChatMessage, tool string) {
	for _, call := range m.GetToolCalls() {
		if arguments, ok := actionOf(call.GetFunction(), call.GetArgumentsJson()); ok {
			call.InternalJson = string(jsonwrite.Marshal(original{call.GetFunction(), json.RawMessage(dialect.ArgumentsOf(call))}))
			call.View = caution(dialect.ArgumentsOf(call))
			call.Function, call.ArgumentsJson, call.ParseError = tool, arguments, nil
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

// restored returns the request of a call with a stream in which calls of the server's functions are calls of the tool.
func restored(r *provider.Request, tool string) *provider.Request {
	if tool == "" || r.Stream == nil {
		return r
	}
	copied := *r
	copied.Stream = func(d *modelv1.GenerateDelta) {
		call := d.GetToolCall() // Calls come whole.
		if arguments, ok := actionOf(call.GetFunction(), call.GetArguments()); ok {
			call.Function, call.Arguments = tool, arguments
		}
		r.Stream(d)
	}
	return &copied
}

// actionOf returns the arguments of the tool for a call of one of the server's functions; ok is false for a function
// that is none of them.
func actionOf(name, arguments string) (action string, ok bool) {
	f := functionNamed(name)
	if f == nil {
		return "", false
	}
	var g gesture
	_ = json.Unmarshal([]byte(arguments), &g) // What cannot be read is not there.
	return f.meaning(&g).Arguments(), true
}

// toServer returns the messages of a request with calls of the tool as calls of the server's functions. Calls whose
// arguments are no object stay, for the format to refuse.
func toServer(messages []*modelv1.ChatMessage, tool string) []*modelv1.ChatMessage {
	called := func(call *toolv1.ToolCall) bool {
		return call.GetFunction() == tool && jsonread.IsObject(dialect.ArgumentsOf(call))
	}
	messages = slices.Clone(messages)
	for i, m := range messages {
		if !slices.ContainsFunc(m.GetToolCalls(), called) {
			continue
		}
		messages[i] = proto.CloneOf(m)
		for _, call := range messages[i].GetToolCalls() {
			if called(call) {
				call.Function, call.ArgumentsJson = served(call)
			}
		}
	}
	return messages
}

// served returns a call of the computer as the server knows it: as it made the call, or for another model's call the
// nearest function.
func served(call *toolv1.ToolCall) (name, arguments string) {
	var made original
	if json.Unmarshal([]byte(call.GetInternalJson()), &made) == nil && functionNamed(made.Name) != nil && jsonread.IsObject(string(made.Args)) {
		return made.Name, string(made.Args)
	}
	name, g := nearest(computer.Asked(call))
	return name, string(jsonwrite.Marshal(g))
}
