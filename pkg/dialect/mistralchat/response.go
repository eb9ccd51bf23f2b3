package mistralchat

import (
	"cmp"
	"errors"
	"slices"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/mistral"
	"github.com/evalfleet/evalfleet/pkg/dialect/openai"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonread"
)

// completion is an answer on the wire, or a chunk of one.
type completion struct {
	Object  string         `json:"object"`
	ID      string         `json:"id"`
	Model   string         `json:"model"`
	Choices []choice       `json:"choices"`
	Usage   *mistral.Usage `json:"usage"`
	Error   jsonread.Raw   `json:"error"`
}

type choice struct {
	Index        int      `json:"index"`
	Message      *message `json:"message"`
	Delta        *message `json:"delta"`
	FinishReason string   `json:"finish_reason"`
}

type message struct {
	Content   mistral.Content `json:"content"`
	ToolCalls []openai.Call   `json:"tool_calls"`
}

// malformed is the error for a body that is not an answer in the format; cause may be nil.
func malformed(cause error) error {
	return &dialect.MalformedError{Answer: "chat completion", Cause: cause}
}

// DecodeResponse implements dialect.Codec.
func (Codec) DecodeResponse(body []byte) (dialect.Response, error) {
	c := &completion{}
	if err := jsonread.Unmarshal(body, c); err != nil {
		return nil, malformed(err)
	}
	if c.Object == mistral.ObjectError {
		return nil, Codec{}.DecodeError(body)
	}
	if c.Choices == nil {
		return nil, malformed(nil)
	}
	return c, nil
}

// Output implements dialect.Response.
func (c *completion) Output(tools []*toolv1.ToolInfo) (*modelv1.ModelOutput, error) {
	var choices []*modelv1.Choice
	slices.SortStableFunc(c.Choices, func(a, b choice) int { return cmp.Compare(a.Index, b.Index) })
	for i := range c.Choices {
		if c.Choices[i].Message == nil {
			return nil, malformed(errors.New("a choice has no message"))
		}
		choices = append(choices, c.Choices[i].output(c.Model, tools))
	}
	return dialect.NewOutput(c.ID, c.Model, c.Usage.Message(), choices...), nil
}

func (c *choice) output(model string, tools []*toolv1.ToolInfo) *modelv1.Choice {
	m := chat.Generated(model)
	m.Content, m.ToolCalls = c.Message.content(), openai.AnsweredCalls(c.Message.ToolCalls, tools)
	return &modelv1.Choice{Message: m, StopReason: stopReason(c.FinishReason)}
}

// content returns the model's content: a plain text, or parts.
func (m *message) content() *contentv1.MessageContent {
	if m.Content.Chunks == nil {
		return chat.TextContent(m.Content.Text)
	}
	return chat.ListContent(m.Content.Parts(true)...)
}

const (
	finishStop   = "stop"
	finishLength = "length"
	finishModel  = "model_length"
	finishCalls  = "tool_calls"
	// finishFiltered is not Mistral's own: servers of others add it.
	finishFiltered = "content_filter"
)

// stopReason is the meaning of a finish reason. The vendor's `error` has none.
func stopReason(finish string) modelv1.StopReason {
	switch finish {
	case finishStop, finishLength, finishModel, finishCalls, finishFiltered:
		return chat.ProviderStopReason(finish)
	default:
		return modelv1.StopReason_STOP_REASON_UNKNOWN
	}
}

// finishReason is the word for a stop reason.
func finishReason(reason modelv1.StopReason) string {
	switch reason {
	case modelv1.StopReason_STOP_REASON_TOOL_CALLS:
		return finishCalls
	case modelv1.StopReason_STOP_REASON_CONTENT_FILTER:
		return finishFiltered
	case modelv1.StopReason_STOP_REASON_MAX_TOKENS:
		return finishLength
	case modelv1.StopReason_STOP_REASON_MODEL_LENGTH:
		return finishModel
	default:
		return finishStop
	}
}
