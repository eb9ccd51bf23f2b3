package responsesapi

import (
	"slices"

	"google.golang.org/protobuf/proto"

	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

// Models of the Responses API take a tool named python for one of the server's own, and call it otherwise. It is sent
// under another name.
const (
	pythonTool = "python"
	pythonSent = "python_exec"
)

// Renamed returns the request with the tool under the name that is sent, and a function that undoes it in the output.
// It copies what it changes.
func Renamed(r *provider.Request) (sent *provider.Request, restore func(*modelv1.ModelOutput)) {
	isPython := func(name string) bool { return name == pythonTool }
	inTool := func(tool *toolv1.ToolInfo) bool { return isPython(tool.GetName()) }
	inMessage := func(m *modelv1.ChatMessage) bool {
		return slices.ContainsFunc(m.GetToolCalls(), func(call *toolv1.ToolCall) bool { return isPython(call.GetFunction()) })
	}
	if !slices.ContainsFunc(r.Tools, inTool) && !slices.ContainsFunc(r.Messages, inMessage) {
		return r, func(*modelv1.ModelOutput) {}
	}
	copied := *r
	copied.Tools, copied.Messages = slices.Clone(r.Tools), slices.Clone(r.Messages)
	for i, tool := range copied.Tools {
		if inTool(tool) {
			copied.Tools[i] = proto.CloneOf(tool)
			copied.Tools[i].Name = pythonSent
		}
	}
	for i, m := range copied.Messages {
		if inMessage(m) {
			copied.Messages[i] = proto.CloneOf(m)
			renameCalls(copied.Messages[i], pythonTool, pythonSent)
		}
	}
	if isPython(r.ToolChoice.GetFunction()) {
		copied.ToolChoice = &toolv1.ToolChoice{Choice: &toolv1.ToolChoice_Function{Function: pythonSent}}
	}
	if r.Stream != nil {
		copied.Stream = func(d *modelv1.GenerateDelta) {
			if d.GetToolCall().GetFunction() == pythonSent {
				d.GetToolCall().Function = pythonTool
			}
			r.Stream(d)
		}
	}
	return &copied, func(output *modelv1.ModelOutput) {
		for _, choice := range output.GetChoices() {
			renameCalls(choice.GetMessage(), pythonSent, pythonTool)
		}
	}
}

// renameCalls renames the function of calls.
func renameCalls(m *modelv1.ChatMessage, from, to string) {
	for _, call := range m.GetToolCalls() {
		if call.GetFunction() == from {
			call.Function = to
		}
	}
}
