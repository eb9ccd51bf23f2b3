package anthropic

import (
	"bytes"
	"encoding/json"
	"strings"

	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	"github.com/evalfleet/evalfleet/pkg/orderedjson"
)

// Kinds of tools that a provider runs.
const (
	toolSearch = "web_search"
	toolMCP    = "mcp_call"
	toolCode   = "code_execution"
)

const (
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

func toolKind(call *wireBlock) string {
	switch {
	case call.Type == "mcp_tool_use":
		return toolMCP
	case strings.HasSuffix(call.Name, toolCode):
		return toolCode
	default:
		return toolSearch
	}
}

// serverTool writes a call that a server made and its result. The result of another provider's code is said as the output of a shell.
func (e *encoder) serverTool(use *contentv1.ToolUse) {
	if block, ok := ownResult(use.GetResult()); ok {
		e.serverCall("server_tool_use", use.GetName(), use)
		e.w.Raw(block)
		return
	}
	switch use.GetToolType() {
	case toolMCP:
		e.serverCall("mcp_tool_use", use.GetName(), use)
		e.w.BeginObject()
		e.w.TextMember("type", mcpResult)
		e.w.TextMember("tool_use_id", use.GetId())
		e.w.BoolMember("is_error", use.Error != nil)
		e.w.Key("content")
		if isList(use.GetResult()) {
			e.w.Raw(use.GetResult())
		} else {
			e.blocks([]block{{text: use.GetResult()}})
		}
		e.w.EndObject()
	case toolCode:
		e.serverCall("server_tool_use", "bash_code_execution", use)
		e.codeOutput(use)
	default:
		e.serverCall("server_tool_use", toolSearch, use)
		e.w.BeginObject()
		e.w.TextMember("type", searchResult)
		e.w.TextMember("tool_use_id", use.GetId())
		if result := use.GetResult(); isList(result) || isObject(result) {
			e.w.RawMember("content", result)
		} else {
			e.w.RawMember("content", "[]")
		}
		e.w.EndObject()
	}
}

func (e *encoder) serverCall(kind, name string, use *contentv1.ToolUse) {
	e.w.BeginObject()
	e.w.TextMember("type", kind)
	e.w.TextMember("id", use.GetId())
	e.w.TextMember("name", name)
	e.w.TextUnlessEmpty("server_name", use.GetContext())
	e.w.Key("input")
	switch arguments := use.GetArguments(); {
	case isObject(arguments):
		e.w.Raw(arguments)
	case arguments == "":
		e.w.Raw("{}")
	default:
		e.w.BeginObject()
		e.w.TextMember("input", arguments)
		e.w.EndObject()
	}
	e.w.EndObject()
}

func (e *encoder) codeOutput(use *contentv1.ToolUse) {
	e.w.BeginObject()
	e.w.TextMember("type", codeResult)
	e.w.TextMember("tool_use_id", use.GetId())
	e.w.Key("content")
	e.w.BeginObject()
	e.w.TextMember("type", "bash_code_execution_result")
	code := int64(0)
	if use.Error != nil {
		code = 1
	}
	e.w.IntMember("return_code", code)
	e.w.TextMember("stdout", use.GetResult())
	e.w.TextMember("stderr", use.GetError())
	e.w.RawMember("content", "[]")
	e.w.EndObject()
	e.w.EndObject()
}

// ownResult returns a result that is a block of this format already.
func ownResult(result string) (block string, ok bool) {
	var head struct {
		Type string `json:"type"`
		ID   string `json:"tool_use_id"`
	}
	if !isObject(result) || json.Unmarshal([]byte(result), &head) != nil || head.ID == "" || !strings.HasSuffix(head.Type, resultSuffix) {
		return "", false
	}
	return result, true
}

func isObject(document string) bool { return begins(document, '{') }

func isList(document string) bool { return begins(document, '[') }

// begins says whether a document is JSON and begins with this bracket.
func begins(document string, bracket byte) bool {
	trimmed := strings.TrimLeft(document, " \t\r\n")
	return trimmed != "" && trimmed[0] == bracket && json.Valid([]byte(document))
}

// sorted returns a document with its members by name and without those that are null, which is how results of servers are kept.
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

// Blocks of the server that are neither said nor run are kept as data under these names, with this type in place of their own.
const (
	compactionData = "compaction_metadata"
	fallbackData   = "fallback_metadata"
)

// keptData are the blocks that become data: by type, the member and the type that the data has.
var keptData = map[string][2]string{
	"compaction": {compactionData, "anthropic_compact"},
	"fallback":   {fallbackData, "anthropic_fallback"},
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

// dataBlock returns the block that data was made of; empty for data of others.
func dataBlock(data *contentv1.Data) string {
	object, err := orderedjson.DecodeObject([]byte(data.GetJson()))
	if err != nil {
		return ""
	}
	for kind, names := range keptData {
		value, _ := object.Get(names[0])
		if block, ok := value.(*orderedjson.Object); ok {
			block.Set("type", kind)
			return string(orderedjson.Append(nil, block))
		}
	}
	return ""
}
