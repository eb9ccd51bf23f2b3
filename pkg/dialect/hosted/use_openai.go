package hosted

import (
	"cmp"
	"encoding/json"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/citation"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonread"
	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
	"github.com/evalfleet/evalfleet/pkg/json/orderedjson"
)

// Types of items of OpenAI's Responses API.
const (
	OpenAISearch = "web_search_call"
	OpenAICode   = "code_interpreter_call"
	OpenAIList   = "mcp_list_tools"
	OpenAIMCP    = "mcp_call"
)

const (
	statusCompleted = "completed"
	statusFailed    = "failed"
)

// openaiItem is an item of what a tool did.
type openaiItem struct {
	ID        string            `json:"id"`
	Status    string            `json:"status"`
	Action    json.RawMessage   `json:"action"`
	Code      string            `json:"code"`
	Outputs   []openaiOutput    `json:"outputs"`
	Tools     []openaiListed    `json:"tools"`
	Server    string            `json:"server_label"`
	Name      string            `json:"name"`
	Arguments dialect.Arguments `json:"arguments"`
	Output    json.RawMessage   `json:"output"`
	Error     json.RawMessage   `json:"error"`
}

// openaiOutput is an output of code: a text, or the address of an image.
type openaiOutput struct {
	Type string `json:"type"`
	Logs string `json:"logs"`
	URL  string `json:"url"`
}

// openaiListed is a tool of a server, as it is listed.
type openaiListed struct {
	InputSchema json.RawMessage `json:"input_schema"`
	Name        string          `json:"name"`
	Annotations json.RawMessage `json:"annotations"`
	Description *string         `json:"description"`
}

// OpenAIUse is what a tool did, of an item of this type; nil for items of other types.
func OpenAIUse(kind string, raw []byte) (*contentv1.ToolUse, error) {
	if kind != OpenAISearch && kind != OpenAICode && kind != OpenAIList && kind != OpenAIMCP {
		return nil, nil
	}
	var i openaiItem
	if err := jsonread.Unmarshal(raw, &i); err != nil {
		return nil, err
	}
	use := &contentv1.ToolUse{Id: i.ID}
	switch kind {
	case OpenAISearch:
		use.ToolType, use.Name, use.Arguments = contentv1.ToolUseType_TOOL_USE_TYPE_WEB_SEARCH, "search", `{"type":"search","query":""}`
		var action struct {
			Type string `json:"type"`
		}
		if json.Unmarshal(i.Action, &action) == nil && action.Type != "" {
			use.Name, use.Arguments = action.Type, string(i.Action)
		}
	case OpenAICode:
		use.ToolType, use.Name, use.Arguments = contentv1.ToolUseType_TOOL_USE_TYPE_CODE_EXECUTION, OpenAICode, i.Code
		outputs := make([]string, len(i.Outputs))
		for n, output := range i.Outputs {
			if outputs[n] = output.Logs; output.Type == "image" {
				outputs[n] = "image: " + output.URL
			}
		}
		use.Result = strings.Join(outputs, "\n\n")
	case OpenAIList:
		use.ToolType, use.Name = contentv1.ToolUseType_TOOL_USE_TYPE_MCP_CALL, OpenAIList
		for n := range i.Tools {
			if description := i.Tools[n].Description; description != nil && *description == "" {
				i.Tools[n].Description = nil
			}
		}
		use.Result = dialect.StoredValue(append([]openaiListed{}, i.Tools...))
	default:
		use.ToolType, use.Name, use.Context = contentv1.ToolUseType_TOOL_USE_TYPE_MCP_CALL, i.Name, &i.Server
		use.Arguments, use.Result = string(i.Arguments), textsOf(i.Output)
	}
	switch {
	case jsonread.IsSet(i.Error):
		use.Error = new(failureText(i.Error))
	case i.Status == statusFailed && kind != OpenAIMCP:
		use.Error = new(statusFailed)
	}
	return use, nil
}

// failureText is the error of a call as a text: one, or the content or the message of an object.
func failureText(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text
	}
	var failure struct {
		Content dialect.Arguments `json:"content"`
		Message string            `json:"message"`
	}
	_ = json.Unmarshal(raw, &failure)
	if said := textsOf([]byte(failure.Content)); said != "" {
		return said // of a list of blocks
	}
	return cmp.Or(string(failure.Content), failure.Message)
}

// WriteOpenAI writes what a tool did as OpenAI takes it back, an item; code is no item to it, but a text
// ([OpenAICodeText]). A list of tools is left out, since the server makes it anew.
func WriteOpenAI(w *jsonwrite.Writer, use *contentv1.ToolUse) {
	isMCP := use.GetToolType() == contentv1.ToolUseType_TOOL_USE_TYPE_MCP_CALL
	if isMCP && use.GetName() == OpenAIList {
		return
	}
	w.BeginObject()
	if isMCP {
		w.TextMember("type", OpenAIMCP)
		w.TextMember("id", use.GetId())
		w.TextMember("server_label", use.GetContext())
		w.TextMember("name", use.GetName())
		w.TextMember("arguments", use.GetArguments())
		w.TextMember("output", use.GetResult())
		if use.Error != nil {
			w.TextObjectMember("error", "type", "mcp_tool_execution_error", "content", use.GetError())
		}
	} else {
		w.TextMember("type", OpenAISearch)
		w.TextMember("id", use.GetId())
		w.RawMember("action", searchAction(use.GetArguments()))
		w.TextMember("status", statusCompleted)
	}
	w.EndObject()
}

// searchAction is the action of a search: OpenAI's own, or one for the query of another vendor's.
func searchAction(arguments string) string {
	given, err := orderedjson.DecodeObject([]byte(arguments))
	if err != nil {
		given = &orderedjson.Object{}
	}
	switch kind, _ := given.Get("type"); kind {
	case "search", "open_page", "find", "find_in_page":
		return arguments
	}
	query, said := given.Get("query")
	if !said {
		query = arguments
	}
	return string(orderedjson.Append(nil, new(orderedjson.Object).With("type", "search").With("query", query)))
}

// openaiPrefixes are the prefixes of the ids of items.
var openaiPrefixes = map[string]string{OpenAISearch: "ws_", OpenAICode: "ci_", OpenAIMCP: "mcp_"}

// OpenAIType is the type of the item of what a tool did.
func OpenAIType(use *contentv1.ToolUse) string {
	switch kind := use.GetToolType(); {
	case kind == contentv1.ToolUseType_TOOL_USE_TYPE_CODE_EXECUTION:
		return OpenAICode
	case kind == contentv1.ToolUseType_TOOL_USE_TYPE_WEB_SEARCH:
		return OpenAISearch
	case use.GetName() == OpenAIList:
		return OpenAIList
	default:
		return OpenAIMCP
	}
}

// OpenAIKept reports whether a client's item is of use to a model: not a list of tools, which their server makes anew,
// nor a search of which nothing is known.
func OpenAIKept(use *contentv1.ToolUse) bool {
	kind := OpenAIType(use)
	return kind != OpenAIList && (kind != OpenAISearch || Query(use) != "")
}

// OpenAIID is the id of the item of what a tool did.
func OpenAIID(use *contentv1.ToolUse) string {
	return idOf(openaiPrefixes[OpenAIType(use)], use.GetId())
}

// OpenAIItem is the item of what a tool did as clients of the Responses API get it, with this status; empty for a list
// of a server's tools, whose server is not known any more.
func OpenAIItem(use *contentv1.ToolUse, status string) string {
	w := jsonwrite.NewWriter(256)
	kind := OpenAIType(use)
	if kind == OpenAIList {
		return ""
	}
	if use.Error != nil && status == statusCompleted {
		status = statusFailed
	}
	w.BeginObject()
	w.TextMember("id", OpenAIID(use))
	w.TextMember("type", kind)
	switch kind {
	case OpenAISearch:
		w.TextMember("status", status)
		w.RawMember("action", withSources(searchAction(use.GetArguments()), Sources(use)))
	case OpenAICode:
		w.TextMember("status", status)
		w.TextMember("code", Code(use))
		w.TextMember("container_id", elsewhere)
		w.BeginListMember("outputs")
		w.TextObject("type", "logs", "logs", Output(use))
		w.EndList()
	default:
		w.TextMember("server_label", use.GetContext())
		w.TextMember("status", status)
		w.TextMember("name", use.GetName())
		w.TextMember("arguments", use.GetArguments())
		w.TextMember("output", textOf(use.GetResult()))
		if use.Error == nil {
			w.RawMember("error", "null")
		} else {
			w.BeginObjectMember("error")
			w.TextMember("type", "mcp_tool_execution_error")
			w.BeginListMember("content")
			w.TextObject("type", "text", "text", use.GetError())
			w.EndList()
			w.EndObject()
		}
	}
	w.EndObject()
	return w.String()
}

// elsewhere is the container of code that another vendor ran. It begins as envelopes do, so that [dialect.HasEnvelope]
// finds it.
const elsewhere = "evalfleet:elsewhere"

// ReopenOpenAI returns an item of a client's request as OpenAI takes it, in whose containers no code of another
// vendor's ran: such code becomes a message.
func ReopenOpenAI(item []byte) []byte {
	var code struct {
		Type      string `json:"type"`
		Container string `json:"container_id"`
	}
	if json.Unmarshal(item, &code) != nil || code.Type != OpenAICode || code.Container != elsewhere {
		return item
	}
	use, err := OpenAIUse(OpenAICode, item)
	if err != nil {
		return item
	}
	w := jsonwrite.NewWriter(len(item))
	w.BeginObject()
	w.TextMember("type", "message")
	w.TextMember("role", "assistant")
	w.BeginListMember("content")
	w.TextObject("type", "output_text", "text", OpenAICodeText(use).GetText().GetText())
	w.EndList()
	w.EndObject()
	return w.Bytes()
}

// OpenAIBegun is the item of what a tool did as a stream begins it, without what is to come.
func OpenAIBegun(use *contentv1.ToolUse) string {
	return OpenAIItem(&contentv1.ToolUse{ToolType: use.GetToolType(), Id: OpenAIID(use), Name: use.GetName(), Context: use.Context}, "in_progress")
}

// OpenAIEvent is an event of a stream between the beginning of such an item and its end: its name, and its text.
type OpenAIEvent struct{ Name, Member, Text string }

// OpenAIEvents are those events of what a tool did.
func OpenAIEvents(use *contentv1.ToolUse) []OpenAIEvent {
	kind := "response." + OpenAIType(use)
	end := OpenAIEvent{Name: kind + "." + statusCompleted}
	if use.Error != nil && use.GetToolType() == contentv1.ToolUseType_TOOL_USE_TYPE_MCP_CALL {
		end.Name = kind + "." + statusFailed
	}
	all := []OpenAIEvent{{Name: kind + ".in_progress"}}
	grow := func(pieces, member, text string) {
		if text != "" {
			all = append(all, OpenAIEvent{kind + pieces + ".delta", "delta", text})
		}
		all = append(all, OpenAIEvent{kind + pieces + ".done", member, text})
	}
	switch OpenAIType(use) {
	case OpenAISearch:
		all = append(all, OpenAIEvent{Name: kind + ".searching"})
	case OpenAICode:
		grow("_code", "code", Code(use))
		all = append(all, OpenAIEvent{Name: kind + ".interpreting"})
	case OpenAIMCP:
		grow("_arguments", "arguments", use.GetArguments())
	}
	return append(all, end)
}

// textOf is the result of a server's tool as a text.
func textOf(result string) string {
	if isBlocks(result) {
		return textsOf([]byte(result))
	}
	return result
}

// withSources is the action of a search with the pages that it found, if it does not name them.
func withSources(action string, found []citation.Source) string {
	object, err := orderedjson.DecodeObject([]byte(action))
	if err != nil || len(found) == 0 {
		return action
	}
	if _, said := object.Get("sources"); said {
		return action
	}
	sources := make([]any, len(found))
	for i, page := range found {
		sources[i] = new(orderedjson.Object).With("type", "url").With("url", page.URL)
	}
	return string(orderedjson.Append(nil, object.With("sources", sources)))
}

// Sealed reports whether a tool's use has more than its item: what a vendor found and wants back, or a block of
// Anthropic's.
func Sealed(use *contentv1.ToolUse) bool {
	result := use.GetResult()
	return use.GetToolType() == contentv1.ToolUseType_TOOL_USE_TYPE_WEB_SEARCH && len(Sources(use)) > 0 && isFound(result) || IsAnthropicResult(result)
}

// OpenAICodeText is what code did, as a text: a server that stores nothing does not take its item back.
func OpenAICodeText(use *contentv1.ToolUse) *contentv1.Content {
	said := use.GetResult()
	if use.Error != nil {
		said = use.GetError()
	}
	return chat.TextPart("code_interpreter: " + use.GetArguments() + "\n\n" + said)
}
