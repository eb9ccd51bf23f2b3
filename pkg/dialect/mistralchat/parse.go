package mistralchat

import (
	"encoding/json"
	"fmt"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/mistral"
	"github.com/evalfleet/evalfleet/pkg/dialect/openai"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonread"
)

// wireRequest is a client's request on the wire.
type wireRequest struct {
	Model            string                 `json:"model"`
	Messages         []wireMessage          `json:"messages"`
	Tools            []openai.Function      `json:"tools"`
	ToolChoice       json.RawMessage        `json:"tool_choice"`
	Parallel         *bool                  `json:"parallel_tool_calls"`
	Stream           *bool                  `json:"stream"`
	MaxTokens        *int64                 `json:"max_tokens"`
	Temperature      *float64               `json:"temperature"`
	TopP             *float64               `json:"top_p"`
	TopK             *int32                 `json:"top_k"`
	PresencePenalty  *float64               `json:"presence_penalty"`
	FrequencyPenalty *float64               `json:"frequency_penalty"`
	Stop             json.RawMessage        `json:"stop"`
	Seed             *int64                 `json:"random_seed"`
	N                *int32                 `json:"n"`
	Effort           *string                `json:"reasoning_effort"`
	Format           *openai.ResponseFormat `json:"response_format"`
	// Not expressible in the canonical form.
	Logprobs   *bool           `json:"logprobs"`
	SafePrompt *bool           `json:"safe_prompt"`
	Guardrails json.RawMessage `json:"guardrails"`
}

// wireMessage is a message of a client's request on the wire.
type wireMessage struct {
	Role       string          `json:"role"`
	Content    mistral.Content `json:"content"`
	ToolCalls  []openai.Call   `json:"tool_calls"`
	ToolCallID string          `json:"tool_call_id"`
	Name       string          `json:"name"`
}

// ParseRequest implements dialect.Codec. Members without a place in the canonical form, such as `metadata`, are
// ignored; what would change the answer and cannot be expressed is refused.
func (Codec) ParseRequest(body []byte) (*dialect.Request, error) {
	var w wireRequest
	if err := jsonread.Unmarshal(body, &w); err != nil {
		return nil, dialect.Unreadable(err)
	}
	if err := w.check(); err != nil {
		return nil, err
	}
	r := &dialect.Request{Model: w.Model, Stream: isTrue(w.Stream), IncludeUsage: true}
	var err error
	if r.Messages, err = w.messages(); err != nil {
		return nil, err
	}
	if r.Tools, err = openai.ReadFunctions(w.Tools); err != nil {
		return nil, err
	}
	if r.Choice, err = openai.ReadChoice(w.ToolChoice, "tool_choice", mistral.AnyTool); err != nil {
		return nil, err
	}
	r.Config, err = w.config()
	return r, err
}

func isTrue(b *bool) bool { return b != nil && *b }

// check refuses requests that cannot be answered as intended.
func (w *wireRequest) check() error {
	switch {
	case w.Model == "":
		return dialect.Required("model")
	case w.Messages == nil:
		return dialect.Required("messages")
	case len(w.Messages) == 0:
		return dialect.Invalid("messages", "needs at least one message")
	case w.MaxTokens != nil && *w.MaxTokens < 1:
		return dialect.Invalid("max_tokens", "is %d; give at least 1", *w.MaxTokens)
	case w.N != nil && (*w.N < 1 || *w.N > maxChoices):
		return dialect.Invalid("n", "is %d; give 1 to %d", *w.N, maxChoices)
	case isTrue(w.Logprobs):
		return dialect.NotSupported("logprobs", "log-probabilities are not supported here")
	case isTrue(w.SafePrompt):
		return dialect.NotSupported("safe_prompt", "is not supported here; give a system message")
	case jsonread.IsSet(w.Guardrails):
		return dialect.NotSupported("guardrails", "is not supported here")
	default:
		return nil
	}
}

func (w *wireRequest) config() (*modelv1.GenerateConfig, error) {
	c := &modelv1.GenerateConfig{
		MaxTokens: w.MaxTokens, Temperature: w.Temperature, TopP: w.TopP, TopK: w.TopK, FrequencyPenalty: w.FrequencyPenalty, PresencePenalty: w.PresencePenalty,
		Seed: w.Seed, NumChoices: w.N, ParallelToolCalls: w.Parallel, ReasoningEffort: w.Effort,
	}
	var err error
	if c.StopSeqs, err = openai.ReadStops(w.Stop, "stop"); err != nil {
		return nil, err
	}
	c.ResponseSchema, err = openai.ReadResponseSchema(w.Format, "response_format")
	return c, err
}

func (w *wireRequest) messages() ([]*modelv1.ChatMessage, error) {
	messages := make([]*modelv1.ChatMessage, 0, len(w.Messages))
	called := map[string]string{} // the function of each call so far, by id
	for i := range w.Messages {
		m, err := w.Messages[i].read(fmt.Sprintf("messages[%d]", i))
		if err != nil {
			return nil, err
		}
		for _, call := range m.GetToolCalls() {
			called[call.GetId()] = call.GetFunction()
		}
		if m.GetRole() == modelv1.Role_ROLE_TOOL && m.GetFunction() == "" {
			m.Function = called[w.Messages[i].ToolCallID]
		}
		messages = append(messages, m)
	}
	return messages, nil
}

// read turns a message into the canonical form. Only an assistant's content may be missing.
func (m *wireMessage) read(param string) (*modelv1.ChatMessage, error) {
	message := &modelv1.ChatMessage{Id: chat.NewID(), Content: chat.TextContent("")}
	switch m.Role {
	case "system":
		message.Role = modelv1.Role_ROLE_SYSTEM
	case "user":
		message.Role = modelv1.Role_ROLE_USER
	case "tool":
		message.Role, message.ToolCallIds, message.Function = modelv1.Role_ROLE_TOOL, []string{m.ToolCallID}, m.Name
	case "assistant":
		message.Role, message.Source = modelv1.Role_ROLE_ASSISTANT, modelv1.MessageSource_MESSAGE_SOURCE_GENERATE
		message.ToolCalls = openai.ReadCalls(m.ToolCalls, nil)
		if m.Content.Absent() {
			return message, nil
		}
	default:
		return nil, dialect.Invalid(param+".role", "%q is none of system, user, assistant, tool", m.Role)
	}
	if m.Content.Absent() {
		return nil, dialect.Required(param + ".content")
	}
	var err error
	message.Content, err = m.Content.Read(param + ".content")
	return message, err
}
