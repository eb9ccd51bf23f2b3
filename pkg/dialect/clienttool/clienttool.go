// Package clienttool describes tools that a vendor's models know without a description, and that the vendor's clients
// run: a computer, a shell, an editor, a memory. A model of another vendor gets them as functions of the same names and
// arguments, so that the client runs their calls as usual.
//
// Tools that the vendor runs itself are none of these: no description makes another server run them.
package clienttool

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
)

// schema is the JSON Schema of an object whose members are given as JSON.
func schema(properties, required string) string {
	return `{"type":"object","properties":{` + properties + `},"required":[` + required + `]}`
}

// anthropic are the tools of Anthropic's clients by the beginnings of their types, which end with a date:
// https://platform.claude.com/docs/en/agents-and-tools/tool-use/overview. A later version of a tool may take more.
var anthropic = []struct{ kind, description, properties, required string }{
	{
		"computer_", "Controls the mouse and the keyboard of a computer, and takes screenshots of it. Take a screenshot after an action to see what it did.",
		`"action":{"type":"string","enum":["screenshot","left_click","right_click","middle_click","double_click","triple_click","mouse_move","left_click_drag","left_mouse_down","left_mouse_up","cursor_position","key","hold_key","type","scroll","wait"],"description":"What to do."},
"coordinate":{"type":"array","items":{"type":"integer"},"description":"Pixels from the left and from the top: of a click or a scroll, of the pointer's new place, or of the end of a drag."},
"start_coordinate":{"type":"array","items":{"type":"integer"},"description":"Where a drag begins."},
"text":{"type":"string","description":"The text to type; the key or combination of keys to press, such as ctrl+s; or a key to hold during a click or a scroll."},
"scroll_direction":{"type":"string","enum":["up","down","left","right"]},
"scroll_amount":{"type":"integer","description":"Clicks of the wheel."},
"duration":{"type":"number","description":"Seconds to wait, or to hold a key."}`, `"action"`,
	},
	{
		"bash_", "Runs commands in a shell that keeps its state between calls.",
		`"command":{"type":"string","description":"The command to run. Required unless the shell is restarted."},
"restart":{"type":"boolean","description":"True restarts the shell."}`, ``,
	},
	{
		"text_editor_", "Views and changes text files.",
		`"command":{"type":"string","enum":["view","create","str_replace","insert"],"description":"What to do."},
"path":{"type":"string","description":"The file, or the folder to view."},
` + edits, `"command","path"`,
	},
	{
		"memory_", "Keeps notes in files below /memories, for later conversations. View the folder before you begin.",
		`"command":{"type":"string","enum":["view","create","str_replace","insert","delete","rename"],"description":"What to do."},
"path":{"type":"string","description":"The file or folder, below /memories."},
` + edits + `,
"old_path":{"type":"string","description":"What to rename."},
"new_path":{"type":"string","description":"Its new path."}`, `"command"`,
	},
}

// edits are the parameters of what views and changes a text.
const edits = `"view_range":{"type":"array","items":{"type":"integer"},"description":"The first and the last line to view, from 1; -1 is the end of the file."},
"file_text":{"type":"string","description":"The text of a new file."},
"old_str":{"type":"string","description":"The text to replace, which must occur once in the file."},
"new_str":{"type":"string","description":"The text in its place."},
"insert_line":{"type":"integer","description":"The line after which to insert; 0 is the beginning."},
"insert_text":{"type":"string","description":"The text to insert."}`

// dated is the length of the date with which the types of Anthropic's tools end.
const dated = len("20250124")

// Anthropic returns a tool of Anthropic's clients by its type, under the name that the client gave it, for a screen of
// so many pixels; ok is false for a type that is none.
func Anthropic(kind, name string, width, height int64) (tool *toolv1.ToolInfo, ok bool) {
	at := slices.IndexFunc(anthropic, func(known struct{ kind, description, properties, required string }) bool {
		return strings.HasPrefix(kind, known.kind) && len(kind) == len(known.kind)+dated
	})
	if at < 0 {
		return nil, false
	}
	known := anthropic[at]
	if width > 0 && height > 0 {
		known.description += fmt.Sprintf(" The screen has %d by %d pixels.", width, height)
	}
	return &toolv1.ToolInfo{Name: name, Description: known.description, ParametersJson: schema(known.properties, known.required)}, true
}

// place is a place of the screen as Gemini's functions have it.
const (
	place = `"x":{"type":"integer","description":"From 0 at the left edge of the screen to 999 at the right one."},
"y":{"type":"integer","description":"From 0 at the top of the screen to 999 at the bottom."}`
	direction = `"direction":{"type":"string","enum":["up","down","left","right"]}`
)

// gemini are the functions of Gemini's computer, which its clients run:
// https://ai.google.dev/gemini-api/docs/computer-use.
var gemini = []struct{ name, description, properties, required string }{
	{"open_web_browser", "Opens the browser.", ``, ``},
	{"wait_5_seconds", "Waits for 5 seconds, such as for a page that loads.", ``, ``},
	{"go_back", "Goes back to the page before.", ``, ``},
	{"go_forward", "Goes forward to the next page of the history.", ``, ``},
	{"search", "Opens the start page of a search engine.", ``, ``},
	{"navigate", "Opens a page.", `"url":{"type":"string","description":"The address of the page."}`, `"url"`},
	{"click_at", "Clicks at a place.", place, `"x","y"`},
	{"hover_at", "Moves the pointer to a place.", place, `"x","y"`},
	{
		"type_text_at", "Types a text at a place.", place + `,
"text":{"type":"string"},
"press_enter":{"type":"boolean","description":"Whether to press Enter afterwards. Default true."},
"clear_before_typing":{"type":"boolean","description":"Whether to remove what is there before. Default true."}`, `"x","y","text"`,
	},
	{"key_combination", "Presses keys together.", `"keys":{"type":"string","description":"Such as enter or control+c."}`, `"keys"`},
	{"scroll_document", "Scrolls the page.", direction, `"direction"`},
	{
		"scroll_at", "Scrolls what is at a place.", place + `,
` + direction + `,
"magnitude":{"type":"integer","description":"How far, from 0 to 999 thousandths of the screen. Default 800."}`, `"x","y","direction"`,
	},
	{
		"drag_and_drop", "Drags what is at a place to another one.", place + `,
"destination_x":{"type":"integer","description":"From 0 to 999, as x."},
"destination_y":{"type":"integer","description":"From 0 to 999, as y."}`, `"x","y","destination_x","destination_y"`,
	},
}

// Gemini returns the functions of Gemini's computer, without those that the client excluded in its tool, which is JSON.
func Gemini(computer json.RawMessage) (tools []*toolv1.ToolInfo) {
	var wanted struct {
		Excluded []string `json:"excludedPredefinedFunctions"`
	}
	_ = json.Unmarshal(computer, &wanted) // What cannot be read excludes nothing.
	for _, f := range gemini {
		if !slices.Contains(wanted.Excluded, f.name) {
			tools = append(tools, &toolv1.ToolInfo{Name: f.name, Description: f.description, ParametersJson: schema(f.properties, f.required)})
		}
	}
	return tools
}
