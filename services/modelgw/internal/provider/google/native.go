package google

import (
	"github.com/evalfleet/evalfleet/pkg/chat"
	format "github.com/evalfleet/evalfleet/pkg/dialect/gemini"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

// native replaces tools of the request by those that the server runs itself, as far as their options allow it and the
// model has them. It fails if the model cannot have both these and functions.
func (m *model) native(request *format.Request) error {
	if !m.name.runsTools() {
		return nil
	}
	var functions []*toolv1.ToolInfo
	for _, tool := range request.Tools {
		switch provider.NativeTool(tool, "gemini", "google") {
		case provider.WebSearch:
			request.Search = true
		case provider.CodeExecution:
			request.Execution = true
		case provider.Computer:
			if !m.name.controlsComputers() {
				functions = append(functions, tool)
				continue
			}
			request.Computer, request.Messages = tool.GetName(), toServer(request.Messages, tool.GetName())
			if request.Choice.GetFunction() == tool.GetName() {
				request.Choice = chat.ModeChoice(toolv1.ToolChoiceMode_TOOL_CHOICE_MODE_AUTO) // No choice can name the server's functions.
			}
		default:
			functions = append(functions, tool)
		}
	}
	request.Tools = functions
	if request.Computer != "" && request.Choice.GetMode() == toolv1.ToolChoiceMode_TOOL_CHOICE_MODE_AUTO {
		request.Choice = nil // It is the default, also beside the server's functions.
	}
	if len(functions) > 0 && (request.Search || request.Execution) && !m.name.mixesTools() {
		return rpcerr.In("tools", rpcerr.CapabilityUnsupported("tools",
			"%s/%s takes functions or tools that Google runs, not both; use Gemini 3 or later, or a provider of the tool's options other than Google", Name, m.name))
	}
	return nil
}
