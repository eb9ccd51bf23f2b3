package anthropic

import (
	"cmp"
	"encoding/json"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonread"
)

// Kinds of tools that a provider runs.
const (
	toolSearch = "web_search"
	toolCode   = "code_execution"
)

const (
	serverToolUse = "server_tool_use"
	mcpUse        = "mcp_tool_use"

	searchResult = "web_search_tool_result"
	mcpResult    = "mcp_tool_result"
	codeResult   = "bash_code_execution_tool_result"
	resultSuffix = "_tool_result"
)

// serverUse makes a part of a call that the server made and of its result.
func serverUse(call, result *wireBlock) *contentv1.Content {
	use := &contentv1.ToolUse{ToolType: toolKind(call), Id: call.ID, Name: call.Name, Arguments: dialect.StoredJSON(call.Input, true)}
	switch result.Type {
	case searchResult:
		content := result.writtenContent()
		use.Result = dialect.StoredJSON(content, false)
		var failure struct {
			Code string `json:"error_code"`
		}
		if json.Unmarshal(content, &failure) == nil && failure.Code != "" {
			use.Error = &failure.Code
		}
	case mcpResult:
		use.Context, use.Result = &call.ServerName, dialect.StoredJSON(result.writtenContent(), true)
		if result.IsError {
			use.Error = new(contentText(result.Content))
		}
	default:
		use.Result = dialect.StoredJSON(result.raw, true)
	}
	return chat.ToolUsePart(use)
}

func toolKind(call *wireBlock) contentv1.ToolUseType {
	switch {
	case call.Type == mcpUse:
		return contentv1.ToolUseType_TOOL_USE_TYPE_MCP_CALL
	case strings.HasSuffix(call.Name, toolCode):
		return contentv1.ToolUseType_TOOL_USE_TYPE_CODE_EXECUTION
	default:
		return contentv1.ToolUseType_TOOL_USE_TYPE_WEB_SEARCH
	}
}

// serverWords are the words for a tool of a server: the types of its call and of its result, and the name by which the
// server knows another provider's.
type serverWords struct{ call, result, name string }

func wordsOf(use *contentv1.ToolUse) serverWords {
	switch use.GetToolType() {
	case contentv1.ToolUseType_TOOL_USE_TYPE_MCP_CALL:
		return serverWords{mcpUse, mcpResult, ""}
	case contentv1.ToolUseType_TOOL_USE_TYPE_CODE_EXECUTION:
		return serverWords{serverToolUse, codeResult, "bash_code_execution"}
	default:
		return serverWords{serverToolUse, searchResult, toolSearch}
	}
}

// serverCall writes the members of a server's call. Code of another provider becomes a shell command.
func (e *encoder) serverCall(use *contentv1.ToolUse) {
	words, arguments := serverWords{call: serverToolUse}, use.GetArguments()
	if !isOwnResult(use.GetResult()) {
		words = wordsOf(use)
	}
	e.Body.TextMember("type", words.call)
	e.Body.TextMember("id", use.GetId())
	e.Body.TextMember("name", cmp.Or(words.name, use.GetName()))
	if words.call == mcpUse {
		e.Body.TextMember("server_name", use.GetContext())
	}
	switch {
	case jsonread.IsObject(arguments) && words.result != codeResult:
		e.Body.RawMember("input", arguments)
	case arguments == "":
		e.Body.RawMember("input", "{}")
	default:
		e.Body.TextObjectMember("input", "input", arguments)
	}
}

// serverResult writes the members of a server tool's result, if it was stored as parts.
func (e *encoder) serverResult(use *contentv1.ToolUse) {
	words, result := wordsOf(use), use.GetResult()
	e.Body.TextMember("type", words.result)
	e.Body.TextMember("tool_use_id", use.GetId())
	switch words.result {
	case mcpResult:
		e.Body.BoolMember("is_error", use.Error != nil)
		if jsonread.IsList(result) {
			e.Body.RawMember("content", result)
		} else {
			e.Body.TextMember("content", result)
		}
	case codeResult: // It is written as the output of a shell.
		e.Body.BeginObjectMember("content")
		e.Body.TextMember("type", "bash_code_execution_result")
		e.Body.IntMember("return_code", 0) // of another provider's shell it is not known
		e.Body.TextMember("stdout", result)
		e.Body.TextMember("stderr", use.GetError())
		e.Body.RawMember("content", "[]")
		e.Body.EndObject()
	default:
		if !jsonread.IsList(result) && !jsonread.IsObject(result) {
			e.Body.TextObjectMember("content", "type", searchResult+"_error", "error_code", "unavailable") // what it found is not known
			return
		}
		e.Body.RawMember("content", result)
	}
}

// isOwnResult reports whether a result is a block of this format already.
func isOwnResult(result string) bool {
	var head struct {
		Type string `json:"type"`
		ID   string `json:"tool_use_id"`
	}
	return jsonread.IsObject(result) && json.Unmarshal([]byte(result), &head) == nil && head.ID != "" && strings.HasSuffix(head.Type, resultSuffix)
}

// Types of blocks that are kept.
const (
	FallbackBlock   = "fallback"
	CompactionBlock = "compaction"
)

// Kept are the blocks of the server that are neither text nor calls.
var Kept = dialect.KeptBlocks{
	CompactionBlock: {Member: dialect.CompactionData, Type: "anthropic_compact"},
	FallbackBlock:   {Member: "fallback_metadata", Type: "anthropic_fallback"},
}
