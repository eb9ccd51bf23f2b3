package anthropic

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
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

// ParseRequest reads the body of a client's request. It fails with *dialect.RequestError on what is no request, and on what only the vendor
// itself can do: its own tools, files that it keeps, search results. How the vendor schedules the request (its tier) and edits its context has no meaning
// for other models and is passed over.
func ParseRequest(body []byte) (*Request, error) {
	var wire wireRequest
	if err := json.Unmarshal(body, &wire); err != nil {
		return nil, dialect.Invalid("", "the body is no request: %s", reason(err))
	}
	if wire.Model == "" {
		return nil, dialect.Required("model")
	}
	if wire.Messages == nil {
		return nil, dialect.Required("messages")
	}
	r := &Request{Model: wire.Model, Stream: wire.Stream, Config: wire.config()}
	if err := r.parseSystem(wire.System); err != nil {
		return nil, err
	}
	functions := map[string]string{}
	for i, m := range wire.Messages {
		messages, err := parseMessage(m, functions)
		if err != nil {
			return nil, dialect.At(fmt.Sprintf("messages.%d.", i), err)
		}
		r.Messages = append(r.Messages, messages...)
	}
	for i, tool := range wire.Tools {
		info, err := parseTool(tool)
		if err != nil {
			return nil, dialect.At(fmt.Sprintf("tools.%d.", i), err)
		}
		r.Tools = append(r.Tools, info)
	}
	return r, r.parseChoice(wire.Choice)
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
		return dialect.Invalid("system", "%s", reason(err))
	}
	if isText && text != "" {
		r.Messages = append(r.Messages, chat.System(text))
	}
	for i := range blocks {
		if blocks[i].Type != "text" {
			return dialect.Invalid(fmt.Sprintf("system.%d", i), "must be a text")
		}
		r.Messages = append(r.Messages, chat.System(blocks[i].Text))
	}
	return nil
}

func parseTool(tool wireTool) (*toolv1.ToolInfo, error) {
	if tool.Type != "" && tool.Type != "custom" {
		return nil, dialect.NotSupported("type", "%q is a tool that only the vendor runs, and not for this model", tool.Type)
	}
	if tool.Name == "" {
		return nil, dialect.Required("name")
	}
	if len(tool.Schema) == 0 || tool.Schema[0] != '{' {
		return nil, dialect.Invalid("input_schema", "must be an object")
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
			return dialect.Required("tool_choice.name")
		}
		r.Choice = chat.FunctionChoice(choice.Name)
	default:
		return dialect.Invalid("tool_choice.type", "%q is none of auto, any, tool, none", choice.Type)
	}
	return nil
}
