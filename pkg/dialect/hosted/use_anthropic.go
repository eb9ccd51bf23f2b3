package hosted

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonedit"
	"github.com/evalfleet/evalfleet/pkg/json/jsonread"
	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
	"github.com/evalfleet/evalfleet/pkg/json/orderedjson"
)

// Types of blocks of Anthropic's format.
const (
	AnthropicCall = "server_tool_use"
	AnthropicMCP  = "mcp_tool_use"

	searchResult = "web_search_tool_result"
	mcpResult    = "mcp_tool_result"
	codeResult   = "bash_code_execution_tool_result"
	resultSuffix = "_tool_result"
)

// anthropicBlock is a block of a tool's call, or of its result.
type anthropicBlock struct {
	Type    string          `json:"type"`
	ID      string          `json:"id"`
	Name    string          `json:"name"`
	Server  string          `json:"server_name"`
	Input   json.RawMessage `json:"input"`
	UseID   string          `json:"tool_use_id"`
	IsError bool            `json:"is_error"`
	Content json.RawMessage `json:"content"`
}

// AnthropicUse is what a tool did, of the blocks of its call and of its result. What the platform has put into the
// result for another vendor's search ([ForAnthropic]) is that search again.
func AnthropicUse(call, result []byte) *contentv1.Content {
	var called, answered anthropicBlock
	_, _ = json.Unmarshal(call, &called), json.Unmarshal(result, &answered) // Members of other kinds are none.
	if use := dialect.UnsealUse(sealOf(answered.Content)); use != nil {
		return chat.ToolUsePart(use)
	}
	use := &contentv1.ToolUse{ToolType: anthropicKind(&called), Id: called.ID, Name: called.Name, Arguments: dialect.StoredJSON(called.Input, true)}
	switch answered.Type {
	case searchResult:
		use.Result = dialect.StoredJSON(answered.Content, false)
		var failure struct {
			Code string `json:"error_code"`
		}
		if json.Unmarshal(answered.Content, &failure) == nil && failure.Code != "" {
			use.Error = &failure.Code
		}
	case mcpResult:
		use.Context, use.Result = &called.Server, textsOf(answered.Content)
		if answered.IsError {
			use.Error = new(use.GetResult())
		}
		if isBlocks(string(answered.Content)) {
			use.Result = dialect.StoredJSON(answered.Content, true)
		}
	default:
		use.Result = dialect.StoredJSON(result, true)
	}
	return chat.ToolUsePart(use)
}

// isBlocks reports whether the result of a server's tool is a list of blocks, as Anthropic reports it. Any other result
// is a text, even if it is a JSON list.
func isBlocks(result string) bool {
	type block struct {
		Type string `json:"type"`
	}
	var blocks []block
	isOther := func(b block) bool { return b.Type == "" }
	return jsonread.IsList(result) && json.Unmarshal([]byte(result), &blocks) == nil && !slices.ContainsFunc(blocks, isOther)
}

// textsOf are the texts of content, a text or a list of blocks, joined by line breaks.
func textsOf(content json.RawMessage) string {
	var text string
	if json.Unmarshal(content, &text) == nil {
		return text
	}
	var blocks []struct {
		Text string `json:"text"`
	}
	_ = json.Unmarshal(content, &blocks)
	texts := make([]string, len(blocks))
	for i := range blocks {
		texts[i] = blocks[i].Text
	}
	return strings.Join(texts, "\n")
}

func anthropicKind(call *anthropicBlock) contentv1.ToolUseType {
	switch {
	case call.Type == AnthropicMCP:
		return contentv1.ToolUseType_TOOL_USE_TYPE_MCP_CALL
	case strings.HasSuffix(call.Name, CodeExecution):
		return contentv1.ToolUseType_TOOL_USE_TYPE_CODE_EXECUTION
	default:
		return contentv1.ToolUseType_TOOL_USE_TYPE_WEB_SEARCH
	}
}

// anthropicWords are the words for a tool: the types of its call and of its result, and the name by which Anthropic
// knows another vendor's.
type anthropicWords struct{ call, result, name string }

func wordsOf(use *contentv1.ToolUse) anthropicWords {
	switch use.GetToolType() {
	case contentv1.ToolUseType_TOOL_USE_TYPE_MCP_CALL:
		return anthropicWords{AnthropicMCP, mcpResult, ""}
	case contentv1.ToolUseType_TOOL_USE_TYPE_CODE_EXECUTION:
		return anthropicWords{AnthropicCall, codeResult, "bash_code_execution"}
	default:
		return anthropicWords{AnthropicCall, searchResult, WebSearch}
	}
}

// anthropicID is the id of a tool's use in the form that Anthropic demands; that of its own is in it.
func anthropicID(use *contentv1.ToolUse) string {
	switch {
	case IsAnthropicResult(use.GetResult()):
		return use.GetId()
	case use.GetToolType() == contentv1.ToolUseType_TOOL_USE_TYPE_MCP_CALL:
		return idOf("mcptoolu_", use.GetId())
	default:
		return idOf("srvtoolu_", use.GetId())
	}
}

// WriteAnthropicCall writes the members of a call's block. Code of another vendor becomes a shell command.
func WriteAnthropicCall(w *jsonwrite.Writer, use *contentv1.ToolUse) {
	words, arguments := anthropicWords{call: AnthropicCall}, use.GetArguments()
	if !IsAnthropicResult(use.GetResult()) {
		words = wordsOf(use)
	}
	if _, found := sourcesOf(arguments); found && words.result == searchResult {
		arguments = searchInput(use)
	}
	w.TextMember("type", words.call)
	w.TextMember("id", anthropicID(use))
	w.TextMember("name", cmp.Or(words.name, use.GetName()))
	if words.call == AnthropicMCP {
		w.TextMember("server_name", use.GetContext())
	}
	switch {
	case jsonread.IsObject(arguments) && words.result != codeResult:
		w.RawMember("input", arguments)
	case arguments == "":
		w.RawMember("input", "{}")
	default:
		w.TextObjectMember("input", "input", arguments)
	}
}

// WriteAnthropicResult writes the members of a result's block, unless the result is a whole block
// ([IsAnthropicResult]).
func WriteAnthropicResult(w *jsonwrite.Writer, use *contentv1.ToolUse) {
	words, result := wordsOf(use), use.GetResult()
	w.TextMember("type", words.result)
	w.TextMember("tool_use_id", anthropicID(use))
	switch words.result {
	case mcpResult:
		w.BoolMember("is_error", use.Error != nil)
		if isBlocks(result) {
			w.RawMember("content", result)
		} else {
			w.TextMember("content", result)
		}
	case codeResult: // It is written as the output of a shell.
		w.BeginObjectMember("content")
		w.TextMember("type", "bash_code_execution_result")
		w.IntMember("return_code", 0) // of another vendor's shell it is not known
		w.TextMember("stdout", result)
		w.TextMember("stderr", use.GetError())
		w.RawMember("content", "[]")
		w.EndObject()
	default:
		if !isFound(result) {
			w.TextObjectMember("content", "type", searchResult+"_error", "error_code", "unavailable") // what it found is not known
			return
		}
		w.RawMember("content", result)
	}
}

// IsAnthropicResult reports whether a result is a block of Anthropic's format.
func IsAnthropicResult(result string) bool {
	var head anthropicBlock
	return jsonread.IsObject(result) && json.Unmarshal([]byte(result), &head) == nil && head.UseID != "" && strings.HasSuffix(head.Type, resultSuffix)
}

// foundPage is a page that a search has found.
type foundPage struct {
	Type    string  `json:"type"`
	URL     string  `json:"url"`
	Title   string  `json:"title"`
	Seal    string  `json:"encrypted_content"`
	PageAge *string `json:"page_age"`
}

const foundType = "web_search_result"

// isFound reports whether a result is what Anthropic's search found, or its failure.
func isFound(result string) bool {
	var failure anthropicBlock
	if jsonread.IsObject(result) {
		return json.Unmarshal([]byte(result), &failure) == nil && failure.Type == searchResult+"_error"
	}
	var found []foundPage
	return json.Unmarshal([]byte(result), &found) == nil && found != nil &&
		!slices.ContainsFunc(found, func(page foundPage) bool { return page.Type != foundType || page.Seal == "" })
}

// sealOf is the seal of the first page that a search has found.
func sealOf(content json.RawMessage) string {
	var found []foundPage
	if json.Unmarshal(content, &found) != nil || len(found) == 0 {
		return ""
	}
	return found[0].Seal
}

// ForAnthropic is what a tool did as clients of Anthropic's format get it; nil for what has no place there. A search of
// another vendor is sealed into the first page that it found, so that it comes back whole ([AnthropicUse]); Anthropic
// itself refuses such a page ([ReopenAnthropic]).
func ForAnthropic(use *contentv1.ToolUse) *contentv1.ToolUse {
	switch {
	case use.GetToolType() == contentv1.ToolUseType_TOOL_USE_TYPE_MCP_CALL:
		if use.GetName() == OpenAIList {
			return nil
		}
		own := proto.CloneOf(use)
		own.Id, own.Result = anthropicID(use), cmp.Or(use.GetResult(), use.GetError())
		return own
	case IsAnthropicResult(use.GetResult()):
		return use
	}
	own := proto.CloneOf(use)
	own.Id = anthropicID(use)
	if use.GetToolType() == contentv1.ToolUseType_TOOL_USE_TYPE_CODE_EXECUTION {
		status := 0 // More of it is not known.
		if use.Error != nil {
			status = 1
		}
		own.Name, own.Arguments = CodeExecution, string(jsonwrite.Marshal(map[string]string{"code": Code(use)}))
		own.Result = string(jsonwrite.Marshal(map[string]any{
			"type": CodeExecution + resultSuffix, "tool_use_id": own.GetId(), "content": map[string]any{
				"type": CodeExecution + "_result", "stdout": use.GetResult(), "stderr": use.GetError(), "return_code": status, "content": []any{},
			},
		}))
		return own
	}
	own.Arguments = searchInput(use)
	if own.Name = WebSearch; isFound(use.GetResult()) {
		return own
	}
	pages := []foundPage{}
	for _, source := range Sources(use) {
		pages = append(pages, foundPage{Type: foundType, URL: source.URL, Title: cmp.Or(source.Title, source.URL), Seal: "-"})
	}
	if len(pages) > 0 {
		pages[0].Seal = dialect.Seal(chat.ToolUsePart(use))
	}
	if own.Result = string(jsonwrite.Marshal(pages)); use.Error != nil {
		own.Result = `{"type":"` + searchResult + `_error","error_code":"unavailable"}`
	}
	return own
}

// searchInput is the input of another vendor's search: an object that says what was searched for, and not what was
// found.
func searchInput(use *contentv1.ToolUse) string {
	asked, err := orderedjson.DecodeObject([]byte(use.GetArguments()))
	if err != nil {
		asked = &orderedjson.Object{}
	}
	if _, said := asked.Get("query"); !said && Query(use) != "" {
		asked = new(orderedjson.Object).With("query", Query(use))
	}
	return string(orderedjson.Append(nil, without(asked, "sources")))
}

// ReopenAnthropic returns a block of a client's request in which the pages that ForAnthropic has made are not: what
// that search found is not Anthropic's to read.
func ReopenAnthropic(block []byte) []byte {
	var b anthropicBlock
	if json.Unmarshal(block, &b) != nil || b.Type != searchResult || !dialect.HasEnvelope([]byte(sealOf(b.Content))) {
		return block
	}
	return jsonedit.Member(block, "content", func([]byte) []byte {
		return []byte(`{"type":"` + searchResult + `_error","error_code":"unavailable"}`)
	})
}
