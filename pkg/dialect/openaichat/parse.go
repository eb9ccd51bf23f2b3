package openaichat

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/jsonread"
)

// asked is a client's request on the wire.
type asked struct {
	Model            string             `json:"model"`
	Messages         []askedMessage     `json:"messages"`
	Tools            []askedTool        `json:"tools"`
	ToolChoice       json.RawMessage    `json:"tool_choice"`
	Stream           *bool              `json:"stream"`
	StreamOptions    *streamOptions     `json:"stream_options"`
	MaxTokens        *int64             `json:"max_tokens"`
	MaxCompletion    *int64             `json:"max_completion_tokens"`
	Temperature      *float64           `json:"temperature"`
	TopP             *float64           `json:"top_p"`
	FrequencyPenalty *float64           `json:"frequency_penalty"`
	PresencePenalty  *float64           `json:"presence_penalty"`
	Stop             json.RawMessage    `json:"stop"`
	Seed             *int64             `json:"seed"`
	N                *int32             `json:"n"`
	LogitBias        map[string]float64 `json:"logit_bias"`
	Logprobs         *bool              `json:"logprobs"`
	TopLogprobs      *int32             `json:"top_logprobs"`
	Parallel         *bool              `json:"parallel_tool_calls"`
	Effort           *string            `json:"reasoning_effort"`
	Verbosity        *string            `json:"verbosity"`
	Format           *responseFormat    `json:"response_format"`
	// What the canonical form cannot say.
	Functions    json.RawMessage `json:"functions"`
	FunctionCall json.RawMessage `json:"function_call"`
	Audio        json.RawMessage `json:"audio"`
	Modalities   []string        `json:"modalities"`
	WebSearch    json.RawMessage `json:"web_search_options"`
}

type streamOptions struct {
	IncludeUsage bool `json:"include_usage"`
}

type responseFormat struct {
	Type   string `json:"type"`
	Schema struct {
		Name        string          `json:"name"`
		Description *string         `json:"description"`
		Schema      json.RawMessage `json:"schema"`
		Strict      *bool           `json:"strict"`
	} `json:"json_schema"`
}

type askedTool struct {
	Type     string `json:"type"`
	Function *struct {
		Name        string          `json:"name"`
		Description string          `json:"description"`
		Parameters  json.RawMessage `json:"parameters"`
	} `json:"function"`
}

// ParseRequest reads a client's request. Members that the canonical form has no place for, such as `user` and `metadata`, are passed over; what would change the
// answer and cannot be said fails with *dialect.RequestError, as does what is no request.
func ParseRequest(body []byte) (*Request, error) {
	var a asked
	if err := jsonread.Unmarshal(body, &a); err != nil {
		return nil, unreadable(err)
	}
	switch {
	case a.Model == "":
		return nil, dialect.Required("model")
	case a.Messages == nil:
		return nil, dialect.Required("messages")
	}
	r := &Request{Model: a.Model, Stream: a.Stream != nil && *a.Stream, IncludeUsage: a.StreamOptions != nil && a.StreamOptions.IncludeUsage}
	var err error
	if r.Messages, err = a.messages(); err != nil {
		return nil, err
	}
	if r.Tools, err = a.tools(); err != nil {
		return nil, err
	}
	if r.Choice, err = a.choice(); err != nil {
		return nil, err
	}
	if r.Config, err = a.config(); err != nil {
		return nil, err
	}
	return r, a.check()
}

// check refuses what no answer can be given to as it was meant.
func (a *asked) check() error {
	const none = "null"
	given := func(raw json.RawMessage) bool { return len(raw) > 0 && string(raw) != none }
	switch {
	case len(a.Messages) == 0:
		return dialect.Invalid("messages", "needs at least one message")
	case a.MaxTokens != nil && *a.MaxTokens < 1:
		return dialect.Invalid("max_tokens", "is %d; give at least 1", *a.MaxTokens)
	case a.MaxCompletion != nil && *a.MaxCompletion < 1:
		return dialect.Invalid("max_completion_tokens", "is %d; give at least 1", *a.MaxCompletion)
	case a.N != nil && (*a.N < 1 || *a.N > maxChoices):
		return dialect.Invalid("n", "is %d; give 1 to %d", *a.N, maxChoices)
	case given(a.Functions):
		return dialect.NotSupported("functions", "is not supported here; give `tools`")
	case given(a.FunctionCall):
		return dialect.NotSupported("function_call", "is not supported here; give `tool_choice`")
	case given(a.Audio):
		return dialect.NotSupported("audio", "spoken answers are not supported here")
	case slices.ContainsFunc(a.Modalities, func(kind string) bool { return kind != "text" }):
		return dialect.NotSupported("modalities", "no more than `text` is supported here")
	case given(a.WebSearch):
		return dialect.NotSupported("web_search_options", "is not supported here; give a tool that searches")
	default:
		return nil
	}
}

// unreadable says which member is of another type than it should be.
func unreadable(err error) error {
	if kind, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && kind.Field != "" {
		return dialect.Mismatch(kind)
	}
	return dialect.Invalid("", "the body is no JSON object: %s", strings.TrimPrefix(err.Error(), "json: "))
}

func (a *asked) tools() ([]*toolv1.ToolInfo, error) {
	var tools []*toolv1.ToolInfo
	for i, t := range a.Tools {
		param := fmt.Sprintf("tools[%d]", i)
		switch {
		case t.Type != "function":
			return nil, dialect.NotSupported(param+".type", "%q is not supported here; `function` is", t.Type)
		case t.Function == nil || t.Function.Name == "":
			return nil, dialect.Required(param + ".function.name")
		}
		schema := string(t.Function.Parameters)
		if schema == "" || schema == "null" {
			schema = `{"type":"object","properties":{}}`
		}
		tools = append(tools, &toolv1.ToolInfo{Name: t.Function.Name, Description: t.Function.Description, ParametersJson: schema})
	}
	return tools, nil
}

func (a *asked) choice() (*toolv1.ToolChoice, error) {
	const param = "tool_choice"
	if len(a.ToolChoice) == 0 || string(a.ToolChoice) == "null" {
		return nil, nil
	}
	var word string
	if json.Unmarshal(a.ToolChoice, &word) == nil {
		switch word {
		case "auto":
			return chat.ModeChoice(toolv1.ToolChoiceMode_TOOL_CHOICE_MODE_AUTO), nil
		case "none":
			return chat.ModeChoice(toolv1.ToolChoiceMode_TOOL_CHOICE_MODE_NONE), nil
		case "required":
			return chat.ModeChoice(toolv1.ToolChoiceMode_TOOL_CHOICE_MODE_ANY), nil
		}
		return nil, dialect.Invalid(param, "%q is none of auto, none, required", word)
	}
	var named struct {
		Type     string `json:"type"`
		Function struct {
			Name string `json:"name"`
		} `json:"function"`
	}
	if err := json.Unmarshal(a.ToolChoice, &named); err != nil || named.Type != "function" || named.Function.Name == "" {
		return nil, dialect.Invalid(param, "is neither auto, none nor required, nor the name of a function")
	}
	return chat.FunctionChoice(named.Function.Name), nil
}

func (a *asked) config() (*modelv1.GenerateConfig, error) {
	c := &modelv1.GenerateConfig{
		MaxTokens: a.MaxTokens, Temperature: a.Temperature, TopP: a.TopP, FrequencyPenalty: a.FrequencyPenalty, PresencePenalty: a.PresencePenalty,
		Seed: a.Seed, NumChoices: a.N, Logprobs: a.Logprobs, TopLogprobs: a.TopLogprobs, ParallelToolCalls: a.Parallel, ReasoningEffort: a.Effort, Verbosity: a.Verbosity,
	}
	if a.MaxCompletion != nil {
		c.MaxTokens = a.MaxCompletion
	}
	stops, err := a.stops()
	if err != nil {
		return nil, err
	}
	if stops != nil {
		c.StopSeqs = &modelv1.StringList{Values: stops}
	}
	if a.LogitBias != nil {
		c.LogitBias = &modelv1.LogitBias{Values: map[int64]float64{}}
		for token, bias := range a.LogitBias {
			id, err := strconv.ParseInt(token, 10, 64)
			if err != nil {
				return nil, dialect.Invalid("logit_bias", "%q is no id of a token", token)
			}
			c.LogitBias.Values[id] = bias
		}
	}
	c.ResponseSchema, err = a.schema()
	return c, err
}

// schema reads the schema that the answer is to have.
func (a *asked) schema() (*modelv1.ResponseSchema, error) {
	if a.Format == nil {
		return nil, nil
	}
	const param = "response_format.type"
	switch a.Format.Type {
	case "json_schema":
		s := a.Format.Schema
		if s.Name == "" || len(s.Schema) == 0 {
			return nil, dialect.Invalid("response_format.json_schema", "needs a name and a schema")
		}
		return &modelv1.ResponseSchema{Name: s.Name, JsonSchema: string(s.Schema), Description: s.Description, Strict: s.Strict}, nil
	case "text":
		return nil, nil
	case "json_object":
		return nil, dialect.NotSupported(param, "`json_object` is not supported here; give a `json_schema`")
	default:
		return nil, dialect.Invalid(param, "%q is none of text, json_schema", a.Format.Type)
	}
}

// stops reads one stop sequence, or a list of them.
func (a *asked) stops() ([]string, error) {
	var one *string
	if len(a.Stop) == 0 {
		return nil, nil
	}
	if json.Unmarshal(a.Stop, &one) == nil {
		if one == nil {
			return nil, nil
		}
		return []string{*one}, nil
	}
	var list []string
	if json.Unmarshal(a.Stop, &list) != nil {
		return nil, dialect.Invalid("stop", "is neither a text nor a list of texts")
	}
	return list, nil
}
