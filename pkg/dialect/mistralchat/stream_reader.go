package mistralchat

import (
	"fmt"
	"slices"

	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/mistral"
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
	whole   completion
	growing []*growing
	pieces  dialect.Pieces
}

// growing collects the parts of one choice that grow.
type growing struct {
	content mistral.Growing
	calls   openai.Calls
	places  places
}

// Add implements dialect.StreamReader. An error within a stream may also have the form of OpenAI's.
func (s *streamReader) Add(event dialect.Event) ([]*modelv1.GenerateDelta, error) {
	if string(event.Data) == done {
		s.Ended = true
		return nil, nil
	}
	var chunk completion
	if err := jsonread.Unmarshal(event.Data, &chunk); err != nil {
		return nil, malformed(err)
	}
	if chunk.Object == mistral.ObjectError || jsonread.IsSet(chunk.Error) {
		return nil, Codec{}.DecodeError(event.Data)
	}
	s.Begun = true
	if chunk.ID != "" {
		s.whole.ID = chunk.ID
	}
	if chunk.Model != "" {
		s.whole.Model = chunk.Model
	}
	if chunk.Usage != nil {
		s.whole.Usage = chunk.Usage
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

// add takes a piece of one choice.
func (s *streamReader) add(c *choice) error {
	for len(s.growing) <= c.Index {
		s.whole.Choices = append(s.whole.Choices, choice{Index: len(s.growing), Message: &message{}})
		s.growing = append(s.growing, &growing{})
	}
	if c.FinishReason != "" {
		s.whole.Choices[c.Index].FinishReason = c.FinishReason
	}
	if c.Delta == nil {
		return nil
	}
	g := s.growing[c.Index]
	s.pieces.Choice = int32(c.Index)
	g.content.Add(c.Delta.Content, 0, &s.pieces)
	for i := range c.Delta.ToolCalls {
		piece := &c.Delta.ToolCalls[i]
		if piece.ID == noID {
			piece.ID = ""
		}
		g.places.put(piece)
		call, err := g.calls.Add(piece)
		if err != nil {
			return err
		}
		s.pieces.Add(dialect.CallDelta(call))
	}
	return nil
}

// noID is what the vendor sends for the id of a call's further pieces.
const noID = "null"

// Complete implements dialect.StreamReader. Servers may omit the last event, but send the finish reasons of all
// choices.
func (s *streamReader) Complete() bool {
	unfinished := func(c choice) bool { return c.FinishReason == "" }
	return s.Ended || len(s.whole.Choices) > 0 && !slices.ContainsFunc(s.whole.Choices, unfinished)
}

// Usage implements dialect.StreamReader.
func (s *streamReader) Usage() *modelv1.ModelUsage { return s.whole.Usage.Message() }

// Response implements dialect.StreamReader.
func (s *streamReader) Response() dialect.Response {
	for i, g := range s.growing {
		m := s.whole.Choices[i].Message
		m.Content, m.ToolCalls = g.content.Content(), g.calls.All()
	}
	return &s.whole
}
