package responsesapi

import (
	"slices"

	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

// pythonTool is sent under another name: models of the Responses API take a tool named so for one of the server's own,
// and call it otherwise.
const (
	pythonTool = "python"
	pythonSent = "python_exec"
)

// Renamed returns the request with tools as the models know them, and a function that undoes it in the output. It
// copies what it changes.
func Renamed(r *provider.Request) (sent *provider.Request, restore func(*modelv1.ModelOutput)) {
	name := pythonSent
	for slices.ContainsFunc(r.Tools, func(tool *toolv1.ToolInfo) bool { return tool.GetName() == name }) {
		name += "_"
	}
	sent, restoreNames := provider.Renamed(r, map[string]string{pythonTool: name})
	sent, restorePlan := planned(sent)
	return sent, func(output *modelv1.ModelOutput) {
		restorePlan(output)
		restoreNames(output)
	}
}
