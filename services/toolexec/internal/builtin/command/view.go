package command

import (
	"encoding/json"
	"strings"

	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/json/orderedjson"
)

// View shows the argument of a tool that holds code, as a fenced block of its language. If the argument is absent or
// empty, it shows the tool's name.
func View(title, language, argument string) func(arguments json.RawMessage) *toolv1.ToolCallContent {
	return func(arguments json.RawMessage) *toolv1.ToolCallContent {
		code := text(arguments, argument)
		if code == "" {
			code = title
		}
		code = strings.TrimSpace(code)
		fence := fenceOf(code)
		return &toolv1.ToolCallContent{Title: title, Format: toolv1.ViewFormat_VIEW_FORMAT_MARKDOWN, Content: fence + language + "\n" + code + "\n" + fence + "\n"}
	}
}

// fenceOf returns a fence that is longer than each run of backticks in code.
func fenceOf(code string) string {
	longest, run := len("``"), 0
	for i := range len(code) {
		if run++; code[i] != '`' {
			run = 0
		}
		longest = max(longest, run)
	}
	return strings.Repeat("`", longest+1)
}

// text returns an argument as text, valid or not; empty if it is absent or its value is empty, such as null, false or
// an empty list.
func text(arguments json.RawMessage, name string) string {
	object, err := orderedjson.DecodeObject(arguments)
	if err != nil {
		return ""
	}
	value, _ := object.Get(name)
	switch v := value.(type) {
	case nil:
		return ""
	case string:
		return v
	}
	switch written := string(orderedjson.Append(nil, value)); written {
	case "false", "0", "0.0", "[]", "{}":
		return ""
	default:
		return written
	}
}
