package grok

import (
	"slices"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/dialect"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/xai"
)

// collected is an answer that arrives in pieces.
type collected struct {
	*asked
	whole xai.GetChatCompletionResponse
	steps map[int32]*step
	// calls counts the calls of the client's tools.
	calls int32
	// started means that a piece has come, and complete that the model said why it ended.
	started, complete bool
}

// step is a step of the answer, whose texts grow.
type step struct {
	output                  *xai.CompletionOutput
	text, reasoning, sealed strings.Builder
	// calls are the places of its calls by their ids.
	calls map[string]int
}

// add adds a piece, and returns what is new for those who watch.
func (c *collected) add(chunk *xai.GetChatCompletionChunk) []*modelv1.GenerateDelta {
	c.started = true
	if chunk.GetId() != "" {
		c.whole.Id = chunk.GetId()
	}
	if chunk.GetUsage() != nil {
		c.whole.Usage = chunk.GetUsage()
	}
	c.whole.Citations = append(c.whole.Citations, chunk.GetCitations()...)
	var deltas []*modelv1.GenerateDelta
	for _, piece := range chunk.GetOutputs() {
		deltas = append(deltas, c.addTo(c.step(piece.GetIndex()), piece)...)
	}
	return deltas
}

// step returns the step with an index, which the server chooses.
func (c *collected) step(index int32) *step {
	if s := c.steps[index]; s != nil {
		return s
	}
	s := &step{output: &xai.CompletionOutput{Index: index, Message: &xai.CompletionMessage{}}, calls: map[string]int{}}
	if c.steps == nil {
		c.steps = map[int32]*step{}
	}
	c.steps[index] = s
	c.whole.Outputs = append(c.whole.Outputs, s.output)
	return s
}

func (c *collected) addTo(s *step, piece *xai.CompletionOutputChunk) []*modelv1.GenerateDelta {
	delta, message := piece.GetDelta(), s.output.GetMessage()
	if delta.GetRole() != xai.MessageRole_INVALID_ROLE {
		message.Role = delta.GetRole()
	}
	if reason := piece.GetFinishReason(); reason != xai.FinishReason_REASON_INVALID {
		s.output.FinishReason, c.complete = reason, true
	}
	if added := piece.GetLogprobs().GetContent(); len(added) > 0 {
		if s.output.Logprobs == nil {
			s.output.Logprobs = &xai.LogProbs{}
		}
		s.output.Logprobs.Content = append(s.output.Logprobs.Content, added...)
	}
	s.text.WriteString(delta.GetContent())
	s.reasoning.WriteString(delta.GetReasoningContent())
	s.sealed.WriteString(delta.GetEncryptedContent())
	var deltas []*modelv1.GenerateDelta
	for _, call := range delta.GetToolCalls() {
		if at, known := s.calls[call.GetId()]; known { // The server says how far it is with a call of its own.
			message.ToolCalls[at] = call
			continue
		}
		if call.GetId() != "" {
			s.calls[call.GetId()] = len(message.GetToolCalls())
		}
		message.ToolCalls = append(message.ToolCalls, call)
		if c.isClients(call) {
			deltas = append(deltas, dialect.CallDelta(&modelv1.ToolCallDelta{
				Index: c.calls, Id: call.GetId(), Function: call.GetFunction().GetName(), Arguments: call.GetFunction().GetArguments(),
			}))
			c.calls++
		}
	}
	if message.GetRole() == xai.MessageRole_ROLE_TOOL {
		return nil
	}
	var texts []*modelv1.GenerateDelta
	if text := delta.GetReasoningContent(); text != "" {
		texts = append(texts, dialect.ReasoningDelta(text))
	}
	if text := delta.GetContent(); text != "" {
		texts = append(texts, dialect.TextDelta(text))
	}
	return append(texts, deltas...)
}

// response is the answer as far as it came.
func (c *collected) response() *xai.GetChatCompletionResponse {
	for _, s := range c.steps {
		message := s.output.GetMessage()
		message.Content, message.ReasoningContent, message.EncryptedContent = s.text.String(), s.reasoning.String(), s.sealed.String()
	}
	slices.SortFunc(c.whole.Outputs, func(a, b *xai.CompletionOutput) int { return int(a.GetIndex()) - int(b.GetIndex()) })
	return &c.whole
}
