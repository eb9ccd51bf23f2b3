package google

import (
	"encoding/json"

	format "github.com/evalfleet/evalfleet/pkg/dialect/gemini"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// Kinds of tools that vendors run themselves; the options of such a tool name its kind.
const (
	webSearch     = "web_search"
	codeExecution = "code_execution"
)

// native replaces tools of the request by those that the server runs itself, as far as their options allow it and the
// model has them. It fails if the model cannot have both these and functions.
func (m *model) native(request *format.Request) error {
	if !m.name.runsTools() {
		return nil
	}
	var functions []*toolv1.ToolInfo
	for _, tool := range request.Tools {
		switch nativeKind(tool) {
		case webSearch:
			request.Search = true
		case codeExecution:
			request.Execution = true
		default:
			functions = append(functions, tool)
		}
	}
	request.Tools = functions
	if len(functions) > 0 && (request.Search || request.Execution) && !m.name.mixesTools() {
		return rpcerr.In("tools", rpcerr.CapabilityUnsupported("tools",
			"%s/%s takes functions or tools that Google runs, not both; use Gemini 3 or later, or a provider of the tool's options other than Google", Name, m.name))
	}
	return nil
}

// nativeKind is the kind of a tool that may be Google's own; empty for all others.
func nativeKind(tool *toolv1.ToolInfo) string {
	var options struct {
		Kind      string          `json:"__internal_tool_type__"`
		Gemini    json.RawMessage `json:"gemini"`
		Providers struct {
			Google json.RawMessage `json:"google"`
		} `json:"providers"`
	}
	if json.Unmarshal([]byte(tool.GetOptionsJson()), &options) != nil || options.Kind != tool.GetName() {
		return ""
	}
	allowed := map[string]json.RawMessage{webSearch: options.Gemini, codeExecution: options.Providers.Google}[options.Kind]
	if len(allowed) == 0 || string(allowed) == "false" {
		return ""
	}
	return options.Kind
}
