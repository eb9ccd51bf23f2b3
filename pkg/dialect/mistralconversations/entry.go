package mistralconversations

import (
	"encoding/json"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/mistral"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonread"
	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
)

// Types of entries.
const (
	typeInput     = "message.input"
	typeOutput    = "message.output"
	typeCall      = "function.call"
	typeResult    = "function.result"
	typeExecution = "tool.execution"
)

const mcpCall = contentv1.ToolUseType_TOOL_USE_TYPE_MCP_CALL

// entry is an entry of a conversation or of an answer on the wire.
type entry struct {
	Type    string          `json:"type"`
	ID      string          `json:"id"`
	Role    string          `json:"role"`
	Model   string          `json:"model"`
	Content mistral.Content `json:"content"`
	// The rest is of calls, of their results, and of what tools of the server did.
	ToolCallID string            `json:"tool_call_id"`
	Name       string            `json:"name"`
	Arguments  dialect.Arguments `json:"arguments"`
	Result     string            `json:"result"`
	Info       json.RawMessage   `json:"info"`
}

// begin opens an entry.
func begin(w *jsonwrite.Writer, kind string) {
	w.BeginObject()
	w.TextMember("object", "entry")
	w.TextMember("type", kind)
}

// writeArguments writes the arguments of a call: an object as such.
func writeArguments(w *jsonwrite.Writer, arguments string) {
	if jsonread.IsObject(arguments) {
		w.RawMember("arguments", arguments)
	} else {
		w.TextMember("arguments", arguments)
	}
}

// kinds are the kinds of the server's tools; all others are servers that are connected to it.
var kinds = map[string]contentv1.ToolUseType{
	ToolSearch: contentv1.ToolUseType_TOOL_USE_TYPE_WEB_SEARCH, "web_search_premium": contentv1.ToolUseType_TOOL_USE_TYPE_WEB_SEARCH,
	ToolCode: contentv1.ToolUseType_TOOL_USE_TYPE_CODE_EXECUTION,
}

// toolUse makes a part of what a tool of the server did. A result that is missing or has no members is an empty text as
// JSON.
func (e *entry) toolUse() *contentv1.Content {
	kind, known := kinds[e.Name]
	if !known {
		kind = mcpCall
	}
	result := `""`
	var members map[string]json.RawMessage
	if jsonread.IsSet(e.Info) && (json.Unmarshal(e.Info, &members) != nil || len(members) > 0) {
		result = string(e.Info)
	}
	return chat.ToolUsePart(&contentv1.ToolUse{
		ToolType: kind, Id: e.ID, Name: e.Name, Arguments: string(e.Arguments), Result: result,
	})
}

// nameOf is the server's name of a tool.
func nameOf(use *contentv1.ToolUse) string {
	if _, known := kinds[use.GetName()]; known {
		return use.GetName()
	}
	switch use.GetToolType() {
	case contentv1.ToolUseType_TOOL_USE_TYPE_WEB_SEARCH:
		return ToolSearch
	case contentv1.ToolUseType_TOOL_USE_TYPE_CODE_EXECUTION:
		return ToolCode
	default:
		return use.GetName()
	}
}

// writeInfo writes the result of a tool that is an object; the format has no place for another.
func writeInfo(w *jsonwrite.Writer, use *contentv1.ToolUse) {
	if jsonread.IsObject(use.GetResult()) {
		w.RawMember("info", use.GetResult())
	}
}
