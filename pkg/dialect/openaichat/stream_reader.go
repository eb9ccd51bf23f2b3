package openaichat

import (
	"fmt"
	"slices"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/openai"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonread"
)

// done is the data of the last event of a stream.
const done = "[DONE]"

// maxChoices bounds the choices of one answer: a server sends their indices.
const maxChoices = 1024

// NewStreamReader implements dialect.Codec.
func (Codec) NewStreamReader() dialect.StreamReader { return &streamReader{} }

// streamReader collects an answer that arrives in pieces.
type streamReader struct {
	dialect.Progress
	whole  completion
	texts  []*texts
	pieces dialect.Pieces
}

// texts collects the parts of one choice that grow.
type texts struct {
	content, refusal, reasoningContent, reasoning strings.Builder
	calls                                         openai.Calls
}

// Add implements dialect.StreamReader.
func (s *streamReader) Add(event dialect.Event) ([]*modelv1.GenerateDelta, error) {
	if string(event.Data) == done {
		s.Ended = true
		return nil, nil
	}
	var chunk completion
	if err := jsonread.Unmarshal(event.Data, &chunk); err != nil {
		return nil, malformed(err)
	}
	if chunk.Error != nil {
		return nil, chunk.Error.ToError(event.Data)
	}
	s.Begun = true
	if chunk.ID != "" {
		s.whole.ID = chunk.ID
	}
	if chunk.Model != "" {
		s.whole.Model = chunk.Model
	}
	if used := chunk.usage(); used != nil {
		s.whole.Usage = used
	}
	if chunk.Tier != "" {
		s.whole.Tier = chunk.Tier
	}
	if len(chunk.Created) > 0 {
		s.whole.Created, s.whole.Fingerprint = chunk.Created, chunk.Fingerprint
	}
	for i := range chunk.Choices {
		c := &chunk.Choices[i]
		if c.Index < 0 || c.Index >= maxChoices {
			return nil, malformed(fmt.Errorf("a choice has the index %d", c.Index))
		}
		if err := s.add(c); err != nil {
			return nil, malformed(err)
		}
	}
	return s.pieces.Take(), nil
}

// Complete implements dialect.StreamReader. Some servers omit the last event, but send the finish reasons of all
// choices.
func (s *streamReader) Complete() bool {
	unfinished := func(c choice) bool { return c.FinishReason == "" }
	return s.Ended || len(s.whole.Choices) > 0 && !slices.ContainsFunc(s.whole.Choices, unfinished)
}

// Usage implements dialect.StreamReader.
func (s *streamReader) Usage() *modelv1.ModelUsage { return s.whole.Usage.message() }

// add takes a piece of one choice.
func (s *streamReader) add(c *choice) error {
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
		whole.Logprobs.Tokens = append(whole.Logprobs.Tokens, c.Logprobs.Tokens...)
		whole.Logprobs.TokenLogprobs = append(whole.Logprobs.TokenLogprobs, c.Logprobs.TokenLogprobs...)
	}
	piece := c.Delta
	if piece == nil {
		piece = c.Message // some servers end a stream with the whole message
	}
	if piece == nil {
		return nil
	}
	t.content.WriteString(string(piece.Content))
	t.refusal.WriteString(piece.Refusal)
	t.reasoningContent.WriteString(piece.ReasoningContent)
	t.reasoning.WriteString(piece.Reasoning)
	if len(piece.ExecutedTools) > 0 {
		whole.Message.ExecutedTools = piece.ExecutedTools
	}
	whole.Message.Images = append(whole.Message.Images, piece.Images...)
	whole.Message.ReasoningDetails = append(whole.Message.ReasoningDetails, piece.ReasoningDetails...)
	s.pieces.Choice = int32(c.Index)
	s.pieces.Reasoning(piece.ReasoningContent + piece.Reasoning)
	s.pieces.Text(string(piece.Content) + piece.Refusal)
	for i := range piece.ToolCalls {
		call, err := t.calls.Add(&piece.ToolCalls[i])
		if err != nil {
			return err
		}
		s.pieces.Add(dialect.CallDelta(call))
	}
	return nil
}

// Response implements dialect.StreamReader.
func (s *streamReader) Response() dialect.Response {
	for i := range s.texts {
		t, m := s.texts[i], s.whole.Choices[i].Message
		m.Content, m.Refusal = content(t.content.String()), t.refusal.String()
		m.ReasoningContent, m.Reasoning = t.reasoningContent.String(), t.reasoning.String()
		m.ToolCalls = t.calls.All()
	}
	return &s.whole
}
