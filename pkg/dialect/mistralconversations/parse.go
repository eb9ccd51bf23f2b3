package mistralconversations

import (
	"cmp"
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
	Model        string             `json:"model"`
	Inputs       jsonread.TextOrRaw `json:"inputs"`
	Instructions string             `json:"instructions"`
	Tools        []openai.Function  `json:"tools"`
	Arguments    wireArguments      `json:"completion_args"`
	Stream       *bool              `json:"stream"`
	// Not expressible in the canonical form.
	Agent      string          `json:"agent_id"`
	Guardrails json.RawMessage `json:"guardrails"`
}

type wireArguments struct {
	Stop             json.RawMessage        `json:"stop"`
	PresencePenalty  *float64               `json:"presence_penalty"`
	FrequencyPenalty *float64               `json:"frequency_penalty"`
	Temperature      *float64               `json:"temperature"`
	TopP             *float64               `json:"top_p"`
	MaxTokens        *int64                 `json:"max_tokens"`
	Seed             *int64                 `json:"random_seed"`
	Format           *openai.ResponseFormat `json:"response_format"`
	ToolChoice       json.RawMessage        `json:"tool_choice"`
	Effort           *string                `json:"reasoning_effort"`
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
	r := &dialect.Request{Model: w.Model, Stream: w.Stream != nil && *w.Stream, IncludeUsage: true}
	var err error
	if r.Messages, err = w.messages(); err != nil {
		return nil, err
	}
	if r.Tools, err = openai.ReadFunctions(w.Tools); err != nil {
		return nil, err
	}
	if r.Choice, err = openai.ReadChoice(w.Arguments.ToolChoice, "completion_args.tool_choice", mistral.AnyTool); err != nil {
		return nil, err
	}
	r.Config, err = w.Arguments.config()
	return r, err
}

// check refuses requests that cannot be answered as intended.
func (w *wireRequest) check() error {
	switch {
	case w.Agent != "":
		return dialect.NotSupported("agent_id", "agents that a vendor stores are not known here; give a model")
	case w.Model == "":
		return dialect.Required("model")
	case w.Inputs.Absent():
		return dialect.Required("inputs")
	case jsonread.IsSet(w.Guardrails):
		return dialect.NotSupported("guardrails", "is not supported here")
	case w.Arguments.MaxTokens != nil && *w.Arguments.MaxTokens < 1:
		return dialect.Invalid("completion_args.max_tokens", "is %d; give at least 1", *w.Arguments.MaxTokens)
	default:
		return nil
	}
}

func (a *wireArguments) config() (*modelv1.GenerateConfig, error) {
	c := &modelv1.GenerateConfig{
		MaxTokens: a.MaxTokens, Temperature: a.Temperature, TopP: a.TopP, FrequencyPenalty: a.FrequencyPenalty, PresencePenalty: a.PresencePenalty,
		Seed: a.Seed, ReasoningEffort: a.Effort,
	}
	var err error
	if c.StopSeqs, err = openai.ReadStops(a.Stop, "completion_args.stop"); err != nil {
		return nil, err
	}
	c.ResponseSchema, err = openai.ReadResponseSchema(a.Format, "completion_args.response_format")
	return c, err
}

// messages reads the instructions and the inputs.
func (w *wireRequest) messages() ([]*modelv1.ChatMessage, error) {
	var turns dialect.Turns
	if w.Instructions != "" {
		turns.Add(chat.System(w.Instructions))
	}
	if w.Inputs.IsText {
		turns.Add(chat.User(w.Inputs.Text))
		return turns.Messages(), nil
	}
	var entries []entry
	if err := jsonread.Unmarshal(w.Inputs.Raw, &entries); err != nil {
		return nil, dialect.Invalid("inputs", "is neither a text nor a list of entries: %v", err)
	}
	if len(entries) == 0 {
		return nil, dialect.Invalid("inputs", "needs at least one entry")
	}
	for i := range entries {
		if err := entries[i].read(&turns, fmt.Sprintf("inputs[%d]", i)); err != nil {
			return nil, err
		}
	}
	return turns.Messages(), nil
}

// read adds an entry to a conversation. One without a type is a message.
func (e *entry) read(turns *dialect.Turns, param string) error {
	byRole := map[string]string{"assistant": typeOutput}
	switch kind := cmp.Or(e.Type, byRole[e.Role], typeInput); kind {
	case typeInput, typeOutput:
		if e.Content.Absent() {
			return dialect.Required(param + ".content")
		}
		content, err := e.Content.Read(param + ".content")
		switch {
		case err != nil:
			return err
		case kind == typeOutput || e.Role == "assistant":
			turns.Say(chat.Parts(content)...)
		case e.Role != "user":
			return dialect.Invalid(param+".role", "%q is none of user, assistant", e.Role)
		default:
			turns.Add(&modelv1.ChatMessage{Id: chat.NewID(), Role: modelv1.Role_ROLE_USER, Content: content})
		}
	case typeCall:
		switch {
		case e.ToolCallID == "":
			return dialect.Required(param + ".tool_call_id")
		case e.Name == "":
			return dialect.Required(param + ".name")
		}
		turns.Call(dialect.ToolCall(e.ToolCallID, e.Name, string(e.Arguments), nil))
	case typeResult:
		turns.Result(e.ToolCallID, chat.TextContent(e.Result))
	case typeExecution:
		turns.Say(e.toolUse())
	default:
		return dialect.NotSupported(param+".type", "%q is not supported here", e.Type)
	}
	return nil
}
