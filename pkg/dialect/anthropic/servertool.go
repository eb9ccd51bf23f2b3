package anthropic

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/dialect"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonread"
	"github.com/evalfleet/evalfleet/pkg/json/orderedjson"
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
	use := &contentv1.ToolUse{ToolType: toolKind(call), Id: call.ID, Name: call.Name, Arguments: sorted(call.Input, true)}
	switch result.Type {
	case searchResult:
		content := result.writtenContent()
		use.Result = sorted(content, false)
		var failure struct {
			Code string `json:"error_code"`
		}
		if json.Unmarshal(content, &failure) == nil && failure.Code != "" {
			use.Error = &failure.Code
		}
	case mcpResult:
		use.Context, use.Result = &call.ServerName, sorted(result.writtenContent(), true)
		if result.IsError {
			use.Error = new(contentText(result.Content))
		}
	default:
		use.Result = sorted(result.raw, true)
	}
	return &contentv1.Content{Part: &contentv1.Content_ToolUse{ToolUse: use}}
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

// serverCall writes the members of a server's call. Code of another provider becomes a shell command.
func (e *encoder) serverCall(use *contentv1.ToolUse) {
	kind, name, arguments := serverToolUse, use.GetName(), use.GetArguments()
	asObject := jsonread.IsObject(arguments)
	if !isOwnResult(use.GetResult()) {
		switch use.GetToolType() {
		case contentv1.ToolUseType_TOOL_USE_TYPE_MCP_CALL:
			kind = mcpUse
		case contentv1.ToolUseType_TOOL_USE_TYPE_CODE_EXECUTION:
			name, asObject = "bash_code_execution", false
		default:
			name = toolSearch
		}
	}
	e.Body.TextMember("type", kind)
	e.Body.TextMember("id", use.GetId())
	e.Body.TextMember("name", name)
	if kind == mcpUse {
		e.Body.TextMember("server_name", use.GetContext())
	}
	e.Body.Key("input")
	switch {
	case asObject:
		e.Body.Raw(arguments)
	case arguments == "":
		e.Body.Raw("{}")
	default:
		e.Body.TextObject("input", arguments)
	}
}

// serverResult writes the members of a server tool's result, if it was stored as parts.
func (e *encoder) serverResult(use *contentv1.ToolUse) {
	kind := searchResult
	switch use.GetToolType() { //nolint:exhaustive // All others are searches.
	case contentv1.ToolUseType_TOOL_USE_TYPE_MCP_CALL:
		kind = mcpResult
	case contentv1.ToolUseType_TOOL_USE_TYPE_CODE_EXECUTION:
		kind = codeResult
	}
	e.Body.TextMember("type", kind)
	e.Body.TextMember("tool_use_id", use.GetId())
	result := use.GetResult()
	switch kind {
	case mcpResult:
		e.Body.BoolMember("is_error", use.Error != nil)
		if jsonread.IsList(result) {
			e.Body.RawMember("content", result)
		} else {
			e.Body.TextMember("content", result)
		}
	case codeResult:
		e.Body.Key("content")
		e.codeOutput(use)
	default:
		if !jsonread.IsList(result) && !jsonread.IsObject(result) {
			result = "[]"
		}
		e.Body.RawMember("content", result)
	}
}

// codeOutput writes the output of code, as the output of a shell.
func (e *encoder) codeOutput(use *contentv1.ToolUse) {
	e.Body.BeginObject()
	e.Body.TextMember("type", "bash_code_execution_result")
	e.Body.IntMember("return_code", 0) // of another provider's shell it is not known
	e.Body.TextMember("stdout", use.GetResult())
	e.Body.TextMember("stderr", use.GetError())
	e.Body.RawMember("content", "[]")
	e.Body.EndObject()
}

// isOwnResult reports whether a result is a block of this format already.
func isOwnResult(result string) bool {
	var head struct {
		Type string `json:"type"`
		ID   string `json:"tool_use_id"`
	}
	return jsonread.IsObject(result) && json.Unmarshal([]byte(result), &head) == nil && head.ID != "" && strings.HasSuffix(head.Type, resultSuffix)
}

// sorted returns a document with its members sorted by name and without null members, the form in which results of
// servers are stored.
func sorted(document []byte, indented bool) string {
	decoder := json.NewDecoder(bytes.NewReader(document))
	decoder.UseNumber()
	var value any
	if decoder.Decode(&value) != nil {
		return string(document)
	}
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if indented {
		encoder.SetIndent("", "  ")
	}
	if encoder.Encode(withoutNulls(value)) != nil {
		return string(document)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

func withoutNulls(value any) any {
	switch v := value.(type) {
	case []any:
		for i := range v {
			v[i] = withoutNulls(v[i])
		}
	case map[string]any:
		for name, member := range v {
			if member == nil {
				delete(v, name)
			} else {
				v[name] = withoutNulls(member)
			}
		}
	}
	return value
}

// Blocks of the server that are neither text nor calls are stored as data under these names, with this type in place of
// their own.
const (
	compactionData = dialect.CompactionData
	fallbackData   = "fallback_metadata"
)

// keptData are the blocks that become data: by type, the member and the type that the data has.
var keptData = map[string][2]string{
	compactionBlock: {compactionData, "anthropic_compact"},
	fallbackBlock:   {fallbackData, "anthropic_fallback"},
}

// blockData makes data of a block; ok is false for blocks that are not kept.
func blockData(b *wireBlock) (part *contentv1.Content, ok bool) {
	names, known := keptData[b.Type]
	if !known {
		return nil, false
	}
	block, err := orderedjson.DecodeObject(b.raw)
	if err != nil {
		return nil, false
	}
	block.Set("type", names[1])
	for name, value := range block.All() {
		if value == nil {
			block.Delete(name)
		}
	}
	data := &orderedjson.Object{}
	data.Set(names[0], block)
	return &contentv1.Content{Part: &contentv1.Content_Data{Data: &contentv1.Data{Json: string(orderedjson.Append(nil, data))}}}, true
}

// fallbackBlock and compactionBlock are types of blocks that are kept as data.
const (
	fallbackBlock   = "fallback"
	compactionBlock = "compaction"
)

// Kept reports which of the server's own blocks a conversation contains. The server accepts them only in requests that
// enable the features that produced them.
func Kept(messages []*modelv1.ChatMessage) (compaction, fallback bool) {
	for _, m := range messages {
		for _, part := range m.GetContent().GetList().GetParts() {
			if part.GetData() != nil {
				kind, _ := keptBlock(part)
				compaction = compaction || kind == compactionBlock
				fallback = fallback || kind == fallbackBlock
			}
		}
	}
	return compaction, fallback
}

// Summarized reports whether a message contains the server's summary of the messages before it. The server may fail to
// write one, and then its block is empty.
func Summarized(m *modelv1.ChatMessage) bool {
	return slices.ContainsFunc(m.GetContent().GetList().GetParts(), func(part *contentv1.Content) bool {
		kind, block := keptBlock(part)
		if kind != compactionBlock {
			return false
		}
		summary, _ := block.Get("content")
		return summary != nil && summary != ""
	})
}

// keptBlock returns the block that data was made of, and its type; empty for data of others.
func keptBlock(part *contentv1.Content) (kind string, block *orderedjson.Object) {
	for kind, names := range keptData {
		if block := dialect.DataOf(part, names[0], names[1]); block != nil {
			block.Set("type", kind)
			return kind, block
		}
	}
	return "", nil
}

// dataBlock returns the block that data was made of as JSON; empty for data of others.
func dataBlock(part *contentv1.Content) string {
	_, block := keptBlock(part)
	if block == nil {
		return ""
	}
	return string(orderedjson.Append(nil, block))
}
