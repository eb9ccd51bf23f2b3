package mockllm

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/evalfleet/evalfleet/pkg/bound"
	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
)

// answer is one scripted answer.
type answer struct {
	output *modelv1.ModelOutput // whole outputs; nil for the short form
	short  shortForm
}

// shortForm is the short form of an answer in a script. All members are optional.
type shortForm struct {
	// Text or Completion is the model's text.
	Text       string `json:"text"`
	Completion string `json:"completion"`
	Reasoning  string `json:"reasoning"`
	// Calls are calls of tools.
	Calls []shortCall `json:"tool_calls"`
	// Stop is the stop reason; default `tool_calls` with calls, else `stop`.
	Stop  string          `json:"stop_reason"`
	Model string          `json:"model"`
	Usage json.RawMessage `json:"usage"`
	// Delay is how long the model waits before the answer, and ChunkDelay how long it pauses between the pieces of a
	// streamed answer; seconds.
	Delay      float64 `json:"delay_s"`
	ChunkDelay float64 `json:"chunk_delay_s"`
	// Error makes the call fail.
	Error *shortError `json:"error"`

	usage *modelv1.ModelUsage
}

// shortCall is a call of a tool. Arguments are an object, or the raw text of a model that does not keep to JSON.
type shortCall struct {
	ID        string          `json:"id"`
	Function  string          `json:"function"`
	Arguments json.RawMessage `json:"arguments"`
}

// shortError makes a call fail as an upstream API would.
type shortError struct {
	// Status is the HTTP status; its class decides about retries. 0 is a broken connection.
	Status     int     `json:"status"`
	Message    string  `json:"message"`
	RetryAfter float64 `json:"retry_after_s"`
	// Times is how many attempts of the call fail; 0 is all.
	Times int `json:"times"`
	// AfterChunks is the number of pieces of a streamed answer before the failure.
	AfterChunks int `json:"after_chunks"`
}

func parseAnswers(raws []json.RawMessage) ([]*answer, error) {
	if len(raws) > bound.ScriptAnswers {
		return nil, tooManyAnswers()
	}
	var answers []*answer
	for i, raw := range raws {
		a, err := parseAnswer(raw)
		if err != nil {
			return nil, fmt.Errorf("output %d: %w", i+1, err)
		}
		answers = append(answers, a)
	}
	return answers, nil
}

// parseAnswer reads a text, a short form, or a whole output, which has choices.
func parseAnswer(raw json.RawMessage) (*answer, error) {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return &answer{short: shortForm{Text: text}}, nil
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(raw, &members); err != nil || members == nil {
		return nil, errors.New("must be a text or an object")
	}
	if _, whole := members["choices"]; whole {
		output, err := chat.ParseOutput(raw)
		return &answer{output: output}, err
	}
	a := &answer{}
	if err := decodeStrictly(raw, &a.short); err != nil {
		return nil, err
	}
	if a.short.Text != "" && a.short.Completion != "" {
		return nil, errors.New("has both text and completion")
	}
	a.short.Text = cmp.Or(a.short.Text, a.short.Completion)
	for _, call := range a.short.Calls {
		if call.Function == "" {
			return nil, errors.New("a tool call has no function")
		}
	}
	if a.short.Usage != nil {
		usage, err := chat.ParseUsage(a.short.Usage)
		if err != nil {
			return nil, err
		}
		a.short.usage = usage
	}
	return a, nil
}

// fails reports whether attempt n of a call fails.
func (a *answer) fails(n int) bool {
	e := a.short.Error
	return e != nil && (e.Times == 0 || n <= e.Times)
}

// build makes the output of one call: a copy with message ids of its own. Ids of calls that the script does not set are
// derived from the turn, so that the same call of a run always has the same ids.
func (a *answer) build(model string, turn int32, tools []*toolv1.ToolInfo) *modelv1.ModelOutput {
	if a.output != nil {
		output := proto.CloneOf(a.output)
		for _, choice := range output.GetChoices() {
			choice.GetMessage().Id = chat.NewID()
			if choice.GetMessage().GetSource() == modelv1.MessageSource_MESSAGE_SOURCE_UNSPECIFIED {
				choice.GetMessage().Source = modelv1.MessageSource_MESSAGE_SOURCE_GENERATE
			}
		}
		return output
	}
	message := chat.Assistant(a.short.Text)
	message.Source = modelv1.MessageSource_MESSAGE_SOURCE_GENERATE
	if a.short.Reasoning != "" {
		parts := []*contentv1.Content{chat.ReasoningPart(a.short.Reasoning)}
		if a.short.Text != "" {
			parts = append(parts, chat.TextPart(a.short.Text))
		}
		message.Content = chat.ListContent(parts...)
	}
	for i, call := range a.short.Calls {
		id := cmp.Or(call.ID, fmt.Sprintf("call_%d_%d", turn, i+1))
		message.ToolCalls = append(message.ToolCalls, dialect.ToolCall(id, call.Function, call.text(), tools))
	}
	output := chat.MessageOutput(cmp.Or(a.short.Model, model), message, a.stopReason())
	output.Usage = proto.CloneOf(a.short.usage)
	return output
}

// text returns the arguments as a model would write them.
func (c shortCall) text() string {
	var raw string
	if json.Unmarshal(c.Arguments, &raw) == nil {
		return raw
	}
	return string(c.Arguments)
}

func (a *answer) stopReason() modelv1.StopReason {
	switch {
	case a.short.Stop != "":
		return chat.ProviderStopReason(a.short.Stop)
	case len(a.short.Calls) > 0:
		return modelv1.StopReason_STOP_REASON_TOOL_CALLS
	default:
		return modelv1.StopReason_STOP_REASON_STOP
	}
}
