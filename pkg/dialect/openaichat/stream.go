package openaichat

import (
	"fmt"
	"slices"
	"strings"

	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/jsonread"
)

// done is the data of the last event of a stream.
const done = "[DONE]"

const (
	// maxChoices bounds the choices of one answer, and maxCalls the calls of one choice: their places are numbers that a server sends.
	maxChoices = 1024
	maxCalls   = 4096
)

// Stream collects an answer that comes in pieces. The zero value is ready to use.
type Stream struct {
	whole   completion
	texts   []*texts
	started bool
	ended   bool
}

// texts collects the parts of one choice that grow.
type texts struct {
	content, refusal, reasoningContent, reasoning strings.Builder
	calls                                         []*callTexts
}

type callTexts struct {
	id, name  string
	arguments strings.Builder
}

// Add takes the data of one event and returns the pieces of the answer that are in it. A server's error fails with *Error.
func (s *Stream) Add(data []byte) ([]*modelv1.GenerateDelta, error) {
	if string(data) == done {
		s.ended = true
		return nil, nil
	}
	var chunk completion
	if err := jsonread.Unmarshal(data, &chunk); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotCompletion, err)
	}
	if chunk.Error != nil {
		return nil, chunk.Error.toError(data)
	}
	s.started = true
	if chunk.ID != "" {
		s.whole.ID = chunk.ID
	}
	if chunk.Model != "" {
		s.whole.Model = chunk.Model
	}
	if chunk.Usage != nil {
		s.whole.Usage = chunk.Usage
	}
	var deltas []*modelv1.GenerateDelta
	for i := range chunk.Choices {
		c := &chunk.Choices[i]
		if c.Index < 0 || c.Index >= maxChoices {
			return nil, fmt.Errorf("%w: a choice has the index %d", ErrNotCompletion, c.Index)
		}
		added, err := s.add(c)
		if err != nil {
			return nil, err
		}
		deltas = append(deltas, added...)
	}
	return deltas, nil
}

// Started says whether anything of the answer has come.
func (s *Stream) Started() bool { return s.started }

// Ended says whether the server has said that the stream is over.
func (s *Stream) Ended() bool { return s.ended }

// Whole says whether the answer has come to its end: some servers leave out the last event, but say why the choices ended.
func (s *Stream) Whole() bool {
	return s.ended || slices.ContainsFunc(s.whole.Choices, func(c choice) bool { return c.FinishReason != "" })
}

// Usage returns what the server has said so far of what the answer takes; nil where that is nothing.
func (s *Stream) Usage() *modelv1.ModelUsage {
	if s.whole.Usage == nil {
		return nil
	}
	return s.whole.Usage.message()
}

// add takes a piece of one choice.
func (s *Stream) add(c *choice) ([]*modelv1.GenerateDelta, error) {
	for len(s.texts) <= c.Index {
		s.whole.Choices = append(s.whole.Choices, choice{Index: len(s.texts), Message: &message{}})
		s.texts = append(s.texts, &texts{})
	}
	whole, t := &s.whole.Choices[c.Index], s.texts[c.Index]
	if c.FinishReason != "" {
		whole.FinishReason = c.FinishReason
	}
	if c.FilterResults != nil {
		whole.FilterResults = c.FilterResults
	}
	if c.Logprobs != nil {
		if whole.Logprobs == nil {
			whole.Logprobs = &logprobs{}
		}
		whole.Logprobs.Content = append(whole.Logprobs.Content, c.Logprobs.Content...)
	}
	piece := c.Delta
	if piece == nil {
		piece = c.Message // some servers end a stream with the whole message
	}
	if piece == nil {
		return nil, nil
	}
	t.content.WriteString(string(piece.Content))
	t.refusal.WriteString(piece.Refusal)
	t.reasoningContent.WriteString(piece.ReasoningContent)
	t.reasoning.WriteString(piece.Reasoning)
	whole.Message.ReasoningDetails = append(whole.Message.ReasoningDetails, piece.ReasoningDetails...)
	deltas := textDeltas(c.Index, piece)
	for i := range piece.ToolCalls {
		delta, err := t.addCall(c.Index, &piece.ToolCalls[i])
		if err != nil {
			return nil, err
		}
		deltas = append(deltas, delta)
	}
	return deltas, nil
}

func textDeltas(index int, piece *message) []*modelv1.GenerateDelta {
	var deltas []*modelv1.GenerateDelta
	if reasoning := piece.ReasoningContent + piece.Reasoning; reasoning != "" {
		deltas = append(deltas, &modelv1.GenerateDelta{Choice: int32(index), Piece: &modelv1.GenerateDelta_Reasoning{Reasoning: reasoning}})
	}
	if text := string(piece.Content) + piece.Refusal; text != "" {
		deltas = append(deltas, &modelv1.GenerateDelta{Choice: int32(index), Piece: &modelv1.GenerateDelta_Text{Text: text}})
	}
	return deltas
}

// addCall takes a piece of a tool call. Without an index it belongs to the last call, or is a new one when it has an id.
func (t *texts) addCall(index int, piece *toolCall) (*modelv1.GenerateDelta, error) {
	at := len(t.calls) - 1
	switch {
	case piece.Index != nil:
		at = *piece.Index
	case piece.ID != "" || at < 0:
		at++
	}
	if at < 0 || at >= maxCalls {
		return nil, fmt.Errorf("%w: a tool call has the index %d", ErrNotCompletion, at)
	}
	for len(t.calls) <= at {
		t.calls = append(t.calls, &callTexts{})
	}
	call := t.calls[at]
	delta := &modelv1.ToolCallDelta{Index: int32(at), Arguments: string(piece.Function.Arguments)}
	if call.id == "" && piece.ID != "" {
		call.id, delta.Id = piece.ID, piece.ID
	}
	if call.name == "" && piece.Function.Name != "" {
		call.name, delta.Function = piece.Function.Name, piece.Function.Name
	}
	call.arguments.WriteString(string(piece.Function.Arguments))
	return &modelv1.GenerateDelta{
		Choice: int32(index), Piece: &modelv1.GenerateDelta_ToolCall{ToolCall: delta},
	}, nil
}

// Output returns the answer that was collected. What a cut stream lacks is missing there too: a choice without a reason to stop has `unknown`.
func (s *Stream) Output(tools []*toolv1.ToolInfo) (*modelv1.ModelOutput, error) {
	for i := range s.texts {
		t, m := s.texts[i], s.whole.Choices[i].Message
		m.Content, m.Refusal = content(t.content.String()), t.refusal.String()
		m.ReasoningContent, m.Reasoning = t.reasoningContent.String(), t.reasoning.String()
		m.ToolCalls = nil
		for _, c := range t.calls {
			call := toolCall{ID: c.id}
			call.Function.Name, call.Function.Arguments = c.name, arguments(c.arguments.String())
			m.ToolCalls = append(m.ToolCalls, call)
		}
	}
	return s.whole.output(tools)
}
