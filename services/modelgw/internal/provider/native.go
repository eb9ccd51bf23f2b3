package provider

import (
	"encoding/json"

	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
)

// Kinds of tools that vendors run themselves; the options of such a tool name its kind.
const (
	WebSearch     = "web_search"
	CodeExecution = "code_execution"
)

// NativeTool returns the kind of a tool that a vendor may run itself; empty for all others. searchers and executors are
// the vendor's names in the options of web search and of code execution.
func NativeTool(tool *toolv1.ToolInfo, searchers, executors string) string {
	var options struct {
		Kind      string                     `json:"__internal_tool_type__"`
		Providers map[string]json.RawMessage `json:"providers"`
	}
	var own map[string]json.RawMessage
	document := []byte(tool.GetOptionsJson())
	if json.Unmarshal(document, &options) != nil || json.Unmarshal(document, &own) != nil || options.Kind != tool.GetName() {
		return ""
	}
	allowed := map[string]json.RawMessage{WebSearch: own[searchers], CodeExecution: options.Providers[executors]}[options.Kind]
	if len(allowed) == 0 || string(allowed) == "false" {
		return ""
	}
	return options.Kind
}
