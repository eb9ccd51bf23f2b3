package openairesponses

import (
	"cmp"
	"encoding/json"
	"slices"

	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/openai"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
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
	// GenerateSummary is the old name of Summary.
	GenerateSummary *string `json:"generate_summary"`
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
	items, err := w.items()
	if err != nil {
		return nil, err
	}
	tools, err := w.offer(items)
	if err != nil {
		return nil, err
	}
	r := &dialect.Request{Model: w.Model, Stream: w.Stream, Tools: tools.tools}
	r.Compact = len(items) > 0 && items[len(items)-1].Type == typeCompact
	if r.Messages, err = w.messages(items, tools); err != nil {
		return nil, err
	}
	if r.Choice, err = tools.choice(w.ToolChoice); err != nil {
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

func (w *wireRequest) config() (*modelv1.GenerateConfig, error) {
	c := &modelv1.GenerateConfig{
		MaxTokens: w.MaxTokens, Temperature: w.Temperature, TopP: w.TopP, TopLogprobs: w.TopLogprobs, ParallelToolCalls: w.Parallel,
		ReasoningEffort: w.Reasoning.Effort, ReasoningMode: w.Reasoning.Mode, ReasoningSummary: cmp.Or(w.Reasoning.Summary, w.Reasoning.GenerateSummary), Verbosity: w.Text.Verbosity,
	}
	if slices.Contains(w.Include, includeLogprobs) {
		c.Logprobs = new(true)
	}
	f := w.Text.Format
	switch {
	case f == nil, f.Type == "text":
	case f.Type == openai.AnyJSON:
		c.ResponseSchema = dialect.AnyJSON()
	case f.Type != "json_schema":
		return nil, dialect.Invalid("text.format.type", "%q is none of text, json_object, json_schema", f.Type)
	case f.Name == "" || !jsonread.IsSet(f.Schema):
		return nil, dialect.Invalid("text.format", "needs a name and a schema")
	default:
		c.ResponseSchema = &modelv1.ResponseSchema{Name: f.Name, JsonSchema: string(f.Schema), Description: f.Description, Strict: f.Strict}
	}
	return c, nil
}
