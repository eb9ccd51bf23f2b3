package openairesponses

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/openai"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonread"
)

// wireRequest is a client's request on the wire.
type wireRequest struct {
	Model        string             `json:"model"`
	Input        jsonread.TextOrRaw `json:"input"`
	Instructions string             `json:"instructions"`
	Tools        []wireTool         `json:"tools"`
	ToolChoice   json.RawMessage    `json:"tool_choice"`
	Parallel     *bool              `json:"parallel_tool_calls"`
	Stream       bool               `json:"stream"`
	MaxTokens    *int64             `json:"max_output_tokens"`
	Temperature  *float64           `json:"temperature"`
	TopP         *float64           `json:"top_p"`
	TopLogprobs  *int32             `json:"top_logprobs"`
	Include      []string           `json:"include"`
	Reasoning    wireReasoning      `json:"reasoning"`
	Text         wireText           `json:"text"`
	// Not expressible in the canonical form.
	Previous     string          `json:"previous_response_id"`
	Conversation json.RawMessage `json:"conversation"`
	Background   bool            `json:"background"`
	Prompt       json.RawMessage `json:"prompt"`
}

type wireReasoning struct {
	Effort  *string `json:"effort"`
	Mode    *string `json:"mode"`
	Summary *string `json:"summary"`
}

type wireText struct {
	Verbosity *string `json:"verbosity"`
	Format    *struct {
		Type        string          `json:"type"`
		Name        string          `json:"name"`
		Description *string         `json:"description"`
		Schema      json.RawMessage `json:"schema"`
		Strict      *bool           `json:"strict"`
	} `json:"format"`
}

type wireTool struct {
	Type        string          `json:"type"`
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Parameters  json.RawMessage `json:"parameters"`
}

// ParseRequest implements dialect.Codec. Members without a place in the canonical form, such as `store` and `metadata`,
// are ignored; what would change the answer and cannot be expressed is refused.
func (Codec) ParseRequest(body []byte) (*dialect.Request, error) {
	var w wireRequest
	if err := jsonread.Unmarshal(body, &w); err != nil {
		return nil, dialect.Unreadable(err)
	}
	if err := w.check(); err != nil {
		return nil, err
	}
	r := &dialect.Request{Model: w.Model, Stream: w.Stream}
	var err error
	if r.Messages, err = w.messages(); err != nil {
		return nil, err
	}
	if r.Tools, err = w.tools(); err != nil {
		return nil, err
	}
	if r.Choice, err = w.choice(); err != nil {
		return nil, err
	}
	r.Config, err = w.config()
	return r, err
}

// check refuses requests that cannot be answered as intended.
func (w *wireRequest) check() error {
	switch {
	case w.Model == "":
		return dialect.Required("model")
	case w.Input.Absent():
		return dialect.Required("input")
	case w.Previous != "":
		return notStored("previous_response_id")
	case jsonread.IsSet(w.Conversation):
		return notStored("conversation")
	case w.Background:
		return dialect.NotSupported("background", "answers in the background are not supported here")
	case jsonread.IsSet(w.Prompt):
		return dialect.NotSupported("prompt", "prompts that a vendor stores are not known here")
	case w.MaxTokens != nil && *w.MaxTokens < 1:
		return dialect.Invalid("max_output_tokens", "is %d; give at least 1", *w.MaxTokens)
	default:
		return nil
	}
}

// notStored is the error for a conversation whose beginning the vendor is expected to store.
func notStored(param string) error {
	return &dialect.RequestError{Cause: dialect.NoThreads, Param: param, Message: "conversations are not stored here; send all of it as `input`"}
}

func (w *wireRequest) tools() ([]*toolv1.ToolInfo, error) {
	var tools []*toolv1.ToolInfo
	for i, t := range w.Tools {
		param := fmt.Sprintf("tools[%d]", i)
		switch {
		case t.Type != "function":
			return nil, dialect.NotSupported(param+".type", "%q is not supported here; `function` is", t.Type)
		case t.Name == "":
			return nil, dialect.Required(param + ".name")
		}
		schema := dialect.NoParameters
		if jsonread.IsSet(t.Parameters) {
			schema = string(t.Parameters)
		}
		tools = append(tools, &toolv1.ToolInfo{Name: t.Name, Description: t.Description, ParametersJson: schema})
	}
	return tools, nil
}

func (w *wireRequest) choice() (*toolv1.ToolChoice, error) {
	if !jsonread.IsSet(w.ToolChoice) {
		return nil, nil
	}
	var word string
	if json.Unmarshal(w.ToolChoice, &word) == nil {
		if choice, ok := openai.ChoiceOf(word); ok {
			return choice, nil
		}
	}
	var named struct {
		Type string `json:"type"`
		Name string `json:"name"`
	}
	if json.Unmarshal(w.ToolChoice, &named) != nil || named.Type != "function" || named.Name == "" {
		return nil, dialect.Invalid("tool_choice", "is neither auto, none nor required, nor the name of a function")
	}
	return chat.FunctionChoice(named.Name), nil
}

func (w *wireRequest) config() (*modelv1.GenerateConfig, error) {
	c := &modelv1.GenerateConfig{
		MaxTokens: w.MaxTokens, Temperature: w.Temperature, TopP: w.TopP, TopLogprobs: w.TopLogprobs, ParallelToolCalls: w.Parallel,
		ReasoningEffort: w.Reasoning.Effort, ReasoningMode: w.Reasoning.Mode, ReasoningSummary: w.Reasoning.Summary, Verbosity: w.Text.Verbosity,
	}
	if slices.Contains(w.Include, includeLogprobs) {
		c.Logprobs = new(true)
	}
	f := w.Text.Format
	switch {
	case f == nil, f.Type == "text":
	case f.Type == "json_object":
		return nil, dialect.NotSupported("text.format.type", "`json_object` is not supported here; give a `json_schema`")
	case f.Type != "json_schema":
		return nil, dialect.Invalid("text.format.type", "%q is none of text, json_schema", f.Type)
	case f.Name == "" || !jsonread.IsSet(f.Schema):
		return nil, dialect.Invalid("text.format", "needs a name and a schema")
	default:
		c.ResponseSchema = &modelv1.ResponseSchema{Name: f.Name, JsonSchema: string(f.Schema), Description: f.Description, Strict: f.Strict}
	}
	return c, nil
}
