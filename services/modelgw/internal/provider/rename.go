package provider

import (
	"slices"

	"google.golang.org/protobuf/proto"

	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
)

// Renamed returns the request with tools under the names that their vendor gives them, and a function that undoes it in
// the output. names are the sent names by the offered ones. It copies what it changes.
func Renamed(r *Request, names map[string]string) (sent *Request, restore func(*modelv1.ModelOutput)) {
	isRenamed := func(call *toolv1.ToolCall) bool { return names[call.GetFunction()] != "" }
	inTool := func(tool *toolv1.ToolInfo) bool { return names[tool.GetName()] != "" }
	inMessage := func(m *modelv1.ChatMessage) bool {
		return names[m.GetFunction()] != "" || slices.ContainsFunc(m.GetToolCalls(), isRenamed)
	}
	if !slices.ContainsFunc(r.Tools, inTool) && !slices.ContainsFunc(r.Messages, inMessage) {
		return r, func(*modelv1.ModelOutput) {}
	}
	copied := *r
	copied.Tools, copied.Messages = slices.Clone(r.Tools), slices.Clone(r.Messages)
	for i, tool := range copied.Tools {
		if inTool(tool) {
			copied.Tools[i] = proto.CloneOf(tool)
			copied.Tools[i].Name = names[tool.GetName()]
		}
	}
	for i, m := range copied.Messages {
		if inMessage(m) {
			copied.Messages[i] = proto.CloneOf(m)
			rename(copied.Messages[i], names)
		}
	}
	if name := names[r.ToolChoice.GetFunction()]; name != "" {
		copied.ToolChoice = &toolv1.ToolChoice{Choice: &toolv1.ToolChoice_Function{Function: name}}
	}
	offered := make(map[string]string, len(names))
	for name, sent := range names {
		offered[sent] = name
	}
	return Restored(&copied, offered)
}

// Restored returns the request with an answer that has other names of tools: offered are the names by those that the
// model uses. In its stream the names are restored; the function restores them in the output.
func Restored(r *Request, offered map[string]string) (*Request, func(*modelv1.ModelOutput)) {
	if len(offered) == 0 {
		return r, func(*modelv1.ModelOutput) {}
	}
	copied := *r
	if r.Stream != nil {
		copied.Stream = func(d *modelv1.GenerateDelta) {
			if name := offered[d.GetToolCall().GetFunction()]; name != "" {
				d.GetToolCall().Function = name
			}
			r.Stream(d)
		}
	}
	return &copied, func(output *modelv1.ModelOutput) {
		for _, choice := range output.GetChoices() {
			rename(choice.GetMessage(), offered)
		}
	}
}

// rename renames the functions of a message's calls, and the one whose result it is.
func rename(m *modelv1.ChatMessage, names map[string]string) {
	for _, call := range m.GetToolCalls() {
		if name := names[call.GetFunction()]; name != "" {
			call.Function = name
		}
	}
	if name := names[m.GetFunction()]; name != "" {
		m.Function = name
	}
}
