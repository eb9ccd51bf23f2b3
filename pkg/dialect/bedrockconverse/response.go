package bedrockconverse

import (
	"errors"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonread"
)

// Answer is an answer on the wire.
type Answer struct {
	Result     *result `json:"output"`
	StopReason string  `json:"stopReason"`
	Usage      *usage  `json:"usage"`
	Trace      trace   `json:"trace"`
	// Type and Message are set where an error is in the place of an answer.
	Type    string `json:"__type"`
	Message string `json:"message"`
}

type result struct {
	Message *wireMessage `json:"message"`
}

type usage struct {
	Input      dialect.Tokens  `json:"inputTokens"`
	Output     dialect.Tokens  `json:"outputTokens"`
	CacheRead  *dialect.Tokens `json:"cacheReadInputTokens"`
	CacheWrite *dialect.Tokens `json:"cacheWriteInputTokens"`
}

// trace is what a prompt router and a guardrail did.
type trace struct {
	Router struct {
		Model string `json:"invokedModelId"`
	} `json:"promptRouter"`
	Guardrail struct {
		Input   map[string]assessment   `json:"inputAssessment"`
		Outputs map[string][]assessment `json:"outputAssessments"`
	} `json:"guardrail"`
}

// malformed is the error for bytes that are not an answer in the format; cause may be nil.
func malformed(cause error) error {
	return &dialect.MalformedError{Answer: "answer of Converse", Cause: cause}
}

// DecodeResponse implements dialect.Codec. The response is an *Answer.
func (Codec) DecodeResponse(body []byte) (dialect.Response, error) {
	a := &Answer{}
	switch err := jsonread.Unmarshal(body, a); {
	case err != nil:
		return nil, malformed(err)
	case a.Result == nil && (a.Type != "" || a.Message != ""):
		return nil, (&failure{Type: a.Type, Message: a.Message}).toError(body)
	case a.Result == nil || a.Result.Message == nil:
		return nil, malformed(nil)
	default:
		return a, nil
	}
}

var errNoAnswer = errors.New("it has no message")

// Output implements dialect.Response. The format has neither an id nor the model of an answer, except for the model
// that a prompt router has chosen.
func (a *Answer) Output(tools []*toolv1.ToolInfo) (*modelv1.ModelOutput, error) {
	if a.Result == nil || a.Result.Message == nil {
		return nil, malformed(errNoAnswer)
	}
	m := chat.Generated(a.Trace.Router.Model)
	parts := []*contentv1.Content{}
	for i := range a.Result.Message.Content {
		b := &a.Result.Message.Content[i]
		if call := b.ToolUse; call != nil {
			m.ToolCalls = append(m.ToolCalls, dialect.ToolCall(call.ID, call.Name, call.arguments(), tools))
		} else if part := b.spoken(); part != nil {
			parts = append(parts, part)
		}
	}
	m.Content = chat.ListContent(parts...)
	choice := &modelv1.Choice{Message: m, StopReason: stopReasons.Of(a.StopReason), StopDetails: a.stopDetails()}
	return dialect.NewOutput("", a.Trace.Router.Model, a.Usage.message(), choice), nil
}

// spoken is a block of an answer as a part; nil where it has none. The signature of reasoning is left out, as by the
// reference implementation: past reasoning goes back to the models that sign it as text.
func (b *wireBlock) spoken() *contentv1.Content {
	switch {
	case b.Text != nil:
		return chat.TextPart(*b.Text)
	case b.Image != nil:
		return b.Image.part()
	case b.Citations != nil:
		return chat.TextPart(b.Citations.text())
	case b.Reasoning != nil && b.Reasoning.Text != nil:
		return chat.ReasoningPart(b.Reasoning.Text.Text)
	case b.Reasoning != nil:
		return redacted(b.Reasoning.Redacted)
	default:
		return nil
	}
}

// Stop reasons on the wire.
const (
	stopEnd      = "end_turn"
	stopTool     = "tool_use"
	stopTokens   = "max_tokens"
	stopFiltered = "content_filtered"
	stopGuarded  = "guardrail_intervened"
	stopFull     = "model_context_window_exceeded"
	// stopMalformed is of an answer that the server could not read, and of those that end for a reason that the format
	// does not have.
	stopMalformed = "malformed_model_output"
)

var stopReasons = dialect.StopReasons{
	stopEnd: modelv1.StopReason_STOP_REASON_STOP, "stop_sequence": modelv1.StopReason_STOP_REASON_STOP, stopTool: modelv1.StopReason_STOP_REASON_TOOL_CALLS,
	stopTokens: modelv1.StopReason_STOP_REASON_MAX_TOKENS, stopFull: modelv1.StopReason_STOP_REASON_MODEL_LENGTH,
	stopFiltered: modelv1.StopReason_STOP_REASON_CONTENT_FILTER, stopGuarded: modelv1.StopReason_STOP_REASON_CONTENT_FILTER,
}

// message is the usage in the canonical form, whose input does not contain what the cache had or got; nil if the server
// sent none, or one that is impossible.
func (u *usage) message() *modelv1.ModelUsage {
	if u == nil {
		return nil
	}
	m := chat.KnownUsage(&modelv1.ModelUsage{
		InputTokens: int64(u.Input), OutputTokens: int64(u.Output),
		InputTokensCacheRead: (*int64)(u.CacheRead), InputTokensCacheWrite: (*int64)(u.CacheWrite),
	})
	if m != nil {
		m.TotalTokens = chat.SumTokens(m.InputTokens, m.GetInputTokensCacheRead(), m.GetInputTokensCacheWrite(), m.OutputTokens)
	}
	return m
}
