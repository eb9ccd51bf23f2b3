package anthropic

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/evalfleet/evalfleet/pkg/chat"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
)

// wireRequest is a request on the wire.
type wireRequest struct {
	Model       string          `json:"model"`
	MaxTokens   *int64          `json:"max_tokens"`
	System      json.RawMessage `json:"system"`
	Messages    []wireMessage   `json:"messages"`
	Tools       []wireTool      `json:"tools"`
	Choice      *wireChoice     `json:"tool_choice"`
	Stream      bool            `json:"stream"`
	Temperature *float64        `json:"temperature"`
	TopP        *float64        `json:"top_p"`
	TopK        *int32          `json:"top_k"`
	Stop        []string        `json:"stop_sequences"`
	Thinking    *struct {
		Type   string `json:"type"`
		Budget int64  `json:"budget_tokens"`
	} `json:"thinking"`
	OutputConfig *struct {
		Effort *string     `json:"effort"`
		Format *wireFormat `json:"format"`
	} `json:"output_config"`
	OutputFormat *wireFormat     `json:"output_format"`
	Metadata     json.RawMessage `json:"metadata"`
}

type wireMessage struct {
	Role    string          `json:"role"`
	Content json.RawMessage `json:"content"`
}

type wireTool struct {
	Type        string          `json:"type"`
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Schema      json.RawMessage `json:"input_schema"`
}

type wireChoice struct {
	Type            string `json:"type"`
	Name            string `json:"name"`
	DisableParallel *bool  `json:"disable_parallel_tool_use"`
}

type wireFormat struct {
	Type   string          `json:"type"`
	Schema json.RawMessage `json:"schema"`
}

// schemaName is the name of the schema of an answer, which has none in this format.
const schemaName = "response"

// RequestError says what is wrong with a client's request.
type RequestError struct {
	// Param is the member at fault, such as `messages.2.content`; empty for the request as a whole.
	Param string
	// Message says what is wrong with it.
	Message string
}

// Error implements error.
func (e *RequestError) Error() string {
	if e.Param == "" {
		return e.Message
	}
	return e.Param + ": " + e.Message
}

func invalid(param, format string, arguments ...any) error {
	return &RequestError{Param: param, Message: fmt.Sprintf(format, arguments...)}
}

// ParseRequest reads the body of a client's request. It fails with *RequestError on what is no request, and with *UnsupportedError on what only the vendor
// itself can do: its own tools, files that it keeps, search results. How the vendor schedules the request (its tier) and edits its context has no meaning
// for other models and is passed over.
func ParseRequest(body []byte) (*Request, error) {
	var wire wireRequest
	if err := json.Unmarshal(body, &wire); err != nil {
		return nil, invalid("", "the body is no request: %s", reason(err))
	}
	if wire.Model == "" {
		return nil, invalid("model", "is required")
	}
	if wire.Messages == nil {
		return nil, invalid("messages", "is required")
	}
	r := &Request{Model: wire.Model, Stream: wire.Stream, Config: wire.config()}
	if err := r.parseSystem(wire.System); err != nil {
		return nil, err
	}
	functions := map[string]string{}
	for i, m := range wire.Messages {
		messages, err := parseMessage(m, functions)
		if err != nil {
			return nil, at(fmt.Sprintf("messages.%d", i), err)
		}
		r.Messages = append(r.Messages, messages...)
	}
	for i, tool := range wire.Tools {
		info, err := parseTool(tool)
		if err != nil {
			return nil, at(fmt.Sprintf("tools.%d", i), err)
		}
		r.Tools = append(r.Tools, info)
	}
	return r, r.parseChoice(wire.Choice)
}

// at says where in a request an error is.
func at(place string, err error) error {
	if failure, ok := errors.AsType[*RequestError](err); ok {
		return invalid(place+"."+failure.Param, "%s", failure.Message)
	}
	return fmt.Errorf("%s: %w", place, err)
}

// reason is an error of the JSON reader without its own name.
func reason(err error) string {
	if mismatch, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && mismatch.Field != "" {
		return fmt.Sprintf("%s must not be a %s", mismatch.Field, mismatch.Value)
	}
	return err.Error()
}

func (w *wireRequest) config() *modelv1.GenerateConfig {
	c := &modelv1.GenerateConfig{MaxTokens: w.MaxTokens, Temperature: w.Temperature, TopP: w.TopP, TopK: w.TopK}
	if w.Stop != nil {
		c.StopSeqs = &modelv1.StringList{Values: w.Stop}
	}
	if w.Thinking != nil && w.Thinking.Type == "enabled" && w.Thinking.Budget > 0 {
		c.ReasoningTokens = &w.Thinking.Budget
	}
	format := w.OutputFormat
	if w.OutputConfig != nil {
		c.Effort = w.OutputConfig.Effort
		if w.OutputConfig.Format != nil {
			format = w.OutputConfig.Format
		}
	}
	if format != nil && format.Schema != nil {
		c.ResponseSchema = &modelv1.ResponseSchema{Name: schemaName, JsonSchema: string(format.Schema)}
	}
	if w.Choice != nil && w.Choice.DisableParallel != nil {
		c.ParallelToolCalls = new(!*w.Choice.DisableParallel)
	}
	if len(w.Metadata) > 0 && string(w.Metadata) != "null" {
		c.ExtraBodyJson = new(`{"metadata":` + string(w.Metadata) + `}`)
	}
	return c
}

// parseSystem makes a system message of each block of the instructions.
func (r *Request) parseSystem(raw json.RawMessage) error {
	text, blocks, isText, err := readBlocks(raw)
	if err != nil {
		return invalid("system", "%s", reason(err))
	}
	if isText && text != "" {
		r.Messages = append(r.Messages, chat.System(text))
	}
	for i := range blocks {
		if blocks[i].Type != "text" {
			return invalid(fmt.Sprintf("system.%d", i), "must be a text")
		}
		r.Messages = append(r.Messages, chat.System(blocks[i].Text))
	}
	return nil
}

func parseTool(tool wireTool) (*toolv1.ToolInfo, error) {
	if tool.Type != "" && tool.Type != "custom" {
		return nil, &UnsupportedError{What: "the tool type " + tool.Type + " here: only the vendor runs it"}
	}
	if tool.Name == "" {
		return nil, invalid("name", "is required")
	}
	if len(tool.Schema) == 0 || tool.Schema[0] != '{' {
		return nil, invalid("input_schema", "must be an object")
	}
	return &toolv1.ToolInfo{Name: tool.Name, Description: tool.Description, ParametersJson: string(tool.Schema)}, nil
}

func (r *Request) parseChoice(choice *wireChoice) error {
	if choice == nil {
		return nil
	}
	switch choice.Type {
	case "auto":
		r.Choice = chat.ModeChoice(toolv1.ToolChoiceMode_TOOL_CHOICE_MODE_AUTO)
	case "any":
		r.Choice = chat.ModeChoice(toolv1.ToolChoiceMode_TOOL_CHOICE_MODE_ANY)
	case "none":
		r.Choice = chat.ModeChoice(toolv1.ToolChoiceMode_TOOL_CHOICE_MODE_NONE)
	case "tool":
		if choice.Name == "" {
			return invalid("tool_choice.name", "is required")
		}
		r.Choice = chat.FunctionChoice(choice.Name)
	default:
		return invalid("tool_choice.type", "%q is none of auto, any, tool, none", choice.Type)
	}
	return nil
}

// parseMessage makes messages of a turn: of a user's, each result of a tool is a message of its own, and so is what stands between them. functions are
// the names of the tools by the ids of their calls.
func parseMessage(m wireMessage, functions map[string]string) ([]*modelv1.ChatMessage, error) {
	text, blocks, isText, err := readBlocks(m.Content)
	if err != nil {
		return nil, invalid("content", "%s", reason(err))
	}
	switch m.Role {
	case roleSystem:
		if !isText {
			text = contentText(m.Content)
		}
		return []*modelv1.ChatMessage{chat.System(text)}, nil
	case roleAssistant:
		if isText {
			blocks = []wireBlock{{Type: "text", Text: text}}
		}
		message := chat.Assistant("")
		said := readSpoken(blocks, nil)
		message.Content, message.ToolCalls = chat.ListContent(said.parts...), said.calls
		for _, call := range said.calls {
			functions[call.GetId()] = call.GetFunction()
		}
		return []*modelv1.ChatMessage{message}, nil
	case roleUser:
		if isText {
			return []*modelv1.ChatMessage{chat.User(text)}, nil
		}
		return parseUser(blocks, functions)
	default:
		return nil, invalid("role", "%q is none of user, assistant, system", m.Role)
	}
}

func parseUser(blocks []wireBlock, functions map[string]string) (messages []*modelv1.ChatMessage, err error) {
	var said []*contentv1.Content
	flush := func() {
		if len(said) > 0 {
			message := chat.User("")
			message.Content = chat.ListContent(said...)
			messages, said = append(messages, message), nil
		}
	}
	for i := range blocks {
		if blocks[i].Type == "tool_result" {
			flush()
			result, err := blocks[i].result(functions)
			if err != nil {
				return nil, at(fmt.Sprintf("content.%d", i), err)
			}
			messages = append(messages, result)
			continue
		}
		parts, err := blocks[i].userParts()
		if err != nil {
			return nil, at(fmt.Sprintf("content.%d", i), err)
		}
		said = append(said, parts...)
	}
	flush()
	return messages, nil
}

// result reads a tool's result.
func (b *wireBlock) result(functions map[string]string) (*modelv1.ChatMessage, error) {
	if b.ToolUseID == "" {
		return nil, invalid("tool_use_id", "is required")
	}
	given := &toolv1.ToolResult{CallId: b.ToolUseID, Function: functions[b.ToolUseID]}
	text, blocks, isText, err := readBlocks(b.Content)
	if err != nil {
		return nil, invalid("content", "%s", reason(err))
	}
	given.Content = chat.TextContent(text)
	if !isText {
		parts := []*contentv1.Content{}
		for i := range blocks {
			more, err := blocks[i].userParts()
			if err != nil {
				return nil, at(fmt.Sprintf("content.%d", i), err)
			}
			parts = append(parts, more...)
		}
		given.Content = chat.ListContent(parts...)
	}
	if b.IsError {
		given.Error = &toolv1.ToolCallError{Type: toolv1.ToolErrorType_TOOL_ERROR_TYPE_UNKNOWN, Message: chat.ContentText(given.GetContent())}
	}
	return chat.ToolMessage(given), nil
}

// userParts reads a block that a user says. A document that is given as blocks is these.
func (b *wireBlock) userParts() ([]*contentv1.Content, error) {
	switch {
	case b.Type == "text":
		return []*contentv1.Content{b.textPart()}, nil
	case b.Type == "document" && b.Source != nil && b.Source.Type == "content":
		text, blocks, isText, err := readBlocks(b.Source.Content)
		if err != nil {
			return nil, invalid("source.content", "%s", reason(err))
		}
		if isText {
			return []*contentv1.Content{chat.TextPart(text)}, nil
		}
		var parts []*contentv1.Content
		for i := range blocks {
			if blocks[i].Type == "document" {
				return nil, invalid(fmt.Sprintf("source.content.%d", i), "must be a text or an image")
			}
			inner, err := blocks[i].userParts()
			if err != nil {
				return nil, at(fmt.Sprintf("source.content.%d", i), err)
			}
			parts = append(parts, inner...)
		}
		return parts, nil
	case b.Type == "image", b.Type == "document":
		part, err := b.mediaPart()
		return []*contentv1.Content{part}, err
	case b.Type == "":
		return nil, invalid("type", "is required")
	default:
		return nil, &UnsupportedError{What: "a block of type " + b.Type + " here"}
	}
}

// mediaPart reads an image or a document: its data, or its address.
func (b *wireBlock) mediaPart() (*contentv1.Content, error) {
	if b.Source == nil {
		return nil, invalid("source", "is required")
	}
	uri := ""
	switch s := b.Source; s.Type {
	case "base64":
		uri = "data:" + s.MediaType + ";base64," + s.Data
	case "text":
		uri = "data:text/plain;base64," + base64.StdEncoding.EncodeToString([]byte(s.Data))
	case "url":
		uri = s.URL
	default:
		return nil, &UnsupportedError{What: "a source of type " + s.Type + " here"}
	}
	if b.Type == "image" {
		return chat.ImagePart(uri), nil
	}
	var enabled struct {
		Enabled bool `json:"enabled"`
	}
	_ = json.Unmarshal(b.Citations, &enabled)
	return &contentv1.Content{Part: &contentv1.Content_Document{Document: &contentv1.Document{
		Media: &contentv1.Media{Source: &contentv1.Media_Uri{Uri: uri}}, Filename: b.Title, Citations: enabled.Enabled,
	}}}, nil
}
