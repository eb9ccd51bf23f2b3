package openairesponses

import (
	"cmp"
	"encoding/json"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonread"
	"github.com/evalfleet/evalfleet/pkg/json/orderedjson"
)

// Native is a tool that the server runs itself.
type Native struct {
	// JSON is the tool on the wire, an object.
	JSON string
	// Choice is the type by which a choice names the tool; empty if none can.
	Choice string
	// Computer is a tool whose calls are the server's own items, and whose results are screenshots.
	Computer bool
	// Server is the name of the server of tools that a choice names besides; empty for other tools.
	Server string
}

// wireOutput is the output of code: a text, or the address of an image.
type wireOutput struct {
	Type string `json:"type"`
	Logs string `json:"logs"`
	URL  string `json:"url"`
}

// wireMCPTool is a tool of a server, as the server of the format lists it.
type wireMCPTool struct {
	InputSchema json.RawMessage `json:"input_schema"`
	Name        string          `json:"name"`
	Annotations json.RawMessage `json:"annotations"`
	Description *string         `json:"description"`
}

// listTools is the name of the use that lists the tools of a server.
const listTools = typeMCPList

// serverUse is what a tool of the server did; nil for items of other types.
func (i *item) serverUse() *contentv1.ToolUse {
	use := &contentv1.ToolUse{Id: i.ID}
	switch i.Type {
	case typeSearch:
		use.ToolType, use.Name, use.Arguments = contentv1.ToolUseType_TOOL_USE_TYPE_WEB_SEARCH, "search", `{"type":"search","query":""}`
		var action struct {
			Type string `json:"type"`
		}
		if json.Unmarshal(i.Action, &action) == nil && action.Type != "" {
			use.Name, use.Arguments = action.Type, string(i.Action)
		}
	case typeCode:
		use.ToolType, use.Name, use.Arguments = contentv1.ToolUseType_TOOL_USE_TYPE_CODE_EXECUTION, typeCode, i.Code
		outputs := make([]string, len(i.Outputs))
		for n, output := range i.Outputs {
			if outputs[n] = output.Logs; output.Type == "image" {
				outputs[n] = "image: " + output.URL
			}
		}
		use.Result = strings.Join(outputs, "\n\n")
	case typeMCPList:
		use.ToolType, use.Name = contentv1.ToolUseType_TOOL_USE_TYPE_MCP_CALL, listTools
		tools := make([]wireMCPTool, len(i.Tools))
		for n, tool := range i.Tools {
			tools[n] = wireMCPTool{InputSchema: tool.InputSchema, Name: tool.Name, Annotations: tool.Annotations}
			if tool.Description != "" {
				tools[n].Description = &tool.Description
			}
		}
		use.Result = dialect.StoredValue(tools)
	case typeMCPCall:
		use.ToolType, use.Name, use.Context = contentv1.ToolUseType_TOOL_USE_TYPE_MCP_CALL, i.Name, &i.ServerLabel
		use.Arguments, use.Result = string(i.Arguments), joined(i.Output, "\n")
	default:
		return nil
	}
	switch {
	case jsonread.IsSet(i.Error):
		use.Error = new(failureText(i.Error))
	case i.Status == statusFailed && i.Type != typeMCPCall:
		use.Error = new(statusFailed)
	}
	return use
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
	return cmp.Or(string(failure.Content), failure.Message)
}

// serverTool writes what a tool of a server did. A list of tools is left out, since the server makes it anew.
func (e *encoder) serverTool(use *contentv1.ToolUse) {
	isMCP := use.GetToolType() == contentv1.ToolUseType_TOOL_USE_TYPE_MCP_CALL
	if isMCP && use.GetName() == listTools {
		return
	}
	e.Body.BeginObject()
	if isMCP {
		e.Body.TextMember("type", typeMCPCall)
		e.Body.TextMember("id", use.GetId())
		e.Body.TextMember("server_label", use.GetContext())
		e.Body.TextMember("name", use.GetName())
		e.Body.TextMember("arguments", use.GetArguments())
		e.Body.TextMember("output", use.GetResult())
		if use.Error != nil {
			e.Body.TextObjectMember("error", "type", "mcp_tool_execution_error", "content", use.GetError())
		}
	} else {
		e.Body.TextMember("type", typeSearch)
		e.Body.TextMember("id", use.GetId())
		e.Body.RawMember("action", searchAction(use.GetArguments()))
		e.Body.TextMember("status", statusCompleted)
	}
	e.Body.EndObject()
}

// searchAction is the action of a search: the server's own, or one for the query of another vendor's.
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

// codeText is what code of a server did, as a text: a server that stores nothing does not take its item back.
func codeText(use *contentv1.ToolUse) *contentv1.Content {
	said := use.GetResult()
	if use.Error != nil {
		said = use.GetError()
	}
	return chat.TextPart("code_interpreter: " + use.GetArguments() + "\n\n" + said)
}
