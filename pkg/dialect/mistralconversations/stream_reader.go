package mistralconversations

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/mistral"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonread"
)

// Types of events.
const (
	eventStarted = "conversation.response.started"
	eventDone    = "conversation.response.done"
	eventError   = "conversation.response.error"

	eventMessage  = typeOutput + ".delta"
	eventCall     = typeCall + ".delta"
	toolStarted   = typeExecution + ".started"
	toolArguments = typeExecution + ".delta"
	toolDone      = typeExecution + ".done"
)

// maxEntries bounds the entries of one answer.
const maxEntries = 4096

// NewStreamReader implements dialect.Codec.
func (Codec) NewStreamReader() dialect.StreamReader { return &streamReader{} }

// streamReader collects an answer that arrives in pieces:
//
//	started (message delta | call delta | tool started (delta)* done)* (done | error)
type streamReader struct {
	dialect.Progress
	whole   response
	entries map[string]*growing // by their type and id
	order   []*growing
	pieces  dialect.Pieces
}

// growing is an entry that grows.
type growing struct {
	entry     entry
	content   mistral.Growing
	arguments strings.Builder
	// call is the index of a call among the calls.
	call int32
}

// event is an event on the wire.
type event struct {
	Type         string         `json:"type"`
	Object       string         `json:"object"`
	Conversation string         `json:"conversation_id"`
	Usage        *mistral.Usage `json:"usage"`
	// The rest is an entry, or a piece of one.
	OutputIndex  int               `json:"output_index"`
	ID           string            `json:"id"`
	Model        string            `json:"model"`
	ContentIndex int               `json:"content_index"`
	Content      mistral.Content   `json:"content"`
	ToolCallID   string            `json:"tool_call_id"`
	Name         string            `json:"name"`
	Arguments    dialect.Arguments `json:"arguments"`
	Info         json.RawMessage   `json:"info"`
}

// Add implements dialect.StreamReader.
func (s *streamReader) Add(got dialect.Event) ([]*modelv1.GenerateDelta, error) {
	var e event
	err := jsonread.Unmarshal(got.Data, &e)
	if err != nil {
		return nil, malformed(err)
	}
	if e.Object == mistral.ObjectError {
		return nil, Codec{}.DecodeError(got.Data)
	}
	switch e.Type = cmp.Or(e.Type, got.Type); e.Type {
	case eventError:
		return nil, Codec{}.DecodeError(got.Data)
	case eventStarted:
		s.whole.ID = e.Conversation
	case eventDone:
		s.Begun, s.Ended, s.whole.Usage = true, true, e.Usage
	case eventMessage:
		err = s.message(&e)
	case eventCall:
		err = s.call(&e)
	case toolStarted, toolArguments, toolDone:
		err = s.execution(&e)
	}
	if err != nil {
		return nil, malformed(err)
	}
	return s.pieces.Take(), nil
}

// at returns the entry that an event is about, which may be a new one.
func (s *streamReader) at(e *event, kind, id string) (g *growing, isNew bool, err error) {
	if id == "" {
		id = fmt.Sprint("at ", e.OutputIndex)
	}
	key := kind + " " + id
	if g = s.entries[key]; g != nil {
		return g, false, nil
	}
	if len(s.order) >= maxEntries {
		return nil, false, fmt.Errorf("more than %d entries", maxEntries)
	}
	s.Begun = true // The server's first event only states that it has accepted the request.
	if s.entries == nil {
		s.entries = map[string]*growing{}
	}
	g = &growing{entry: entry{Type: kind, ID: e.ID, Model: e.Model, ToolCallID: e.ToolCallID, Name: e.Name}}
	s.entries[key], s.order = g, append(s.order, g)
	return g, true, nil
}

func (s *streamReader) message(e *event) error {
	g, _, err := s.at(e, typeOutput, e.ID)
	if err == nil {
		g.content.Add(e.Content, e.ContentIndex, &s.pieces)
	}
	return err
}

func (s *streamReader) call(e *event) error {
	g, isNew, err := s.at(e, typeCall, e.ID+e.ToolCallID)
	if err != nil {
		return err
	}
	if isNew {
		g.call = s.pieces.Call(e.ToolCallID, e.Name, string(e.Arguments))
	} else {
		s.pieces.Add(dialect.CallDelta(&modelv1.ToolCallDelta{Index: g.call, Arguments: string(e.Arguments)}))
	}
	g.arguments.WriteString(string(e.Arguments))
	return nil
}

func (s *streamReader) execution(e *event) error {
	g, _, err := s.at(e, typeExecution, e.ID)
	if err != nil {
		return err
	}
	g.arguments.WriteString(string(e.Arguments))
	if e.Type == toolDone {
		g.entry.Info = e.Info
		whole := g.whole()
		s.pieces.Part(whole.toolUse())
	}
	return nil
}

// Usage implements dialect.StreamReader.
func (s *streamReader) Usage() *modelv1.ModelUsage { return s.whole.Usage.Message() }

// Response implements dialect.StreamReader.
func (s *streamReader) Response() dialect.Response {
	s.whole.cut = !s.Ended
	for _, g := range s.order {
		s.whole.Outputs = append(s.whole.Outputs, g.whole())
	}
	return &s.whole
}

// whole returns the entry as far as it came.
func (g *growing) whole() entry {
	e := g.entry
	e.Content, e.Arguments = g.content.Content(), dialect.Arguments(g.arguments.String())
	return e
}
