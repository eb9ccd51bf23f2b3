package openairesponses

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/dialect"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonread"
)

// Types of events that this package treats in a way of their own.
const (
	// eventPrefix precedes the status of the answer in the events of its states.
	eventPrefix     = "response."
	eventCreated    = "response.created"
	eventInProgress = eventPrefix + statusInProgress
	eventAdded      = "response.output_item.added"
	eventItemDone   = "response.output_item.done"
	eventCompleted  = eventPrefix + statusCompleted
	eventIncomplete = eventPrefix + statusIncomplete
	eventFailed     = eventPrefix + statusFailed
	eventError      = "error"

	eventArguments = "response.function_call_arguments"
	eventInput     = "response.custom_tool_call_input"
	eventText      = "response.output_text"
	eventRefusal   = "response.refusal"
	eventReasoning = "response.reasoning_text"
	eventSummary   = "response.reasoning_summary_text"
)

const (
	// maxItems bounds the items of one answer and their places, and maxParts the parts of one item and theirs.
	maxItems = 4096
	maxParts = 1024
)

// grown are the events of pieces, with the type of the part that grows; arguments are of no part.
var grown = map[string]string{
	eventText + ".delta": partText, eventRefusal + ".delta": partRefusal, eventReasoning + ".delta": partReasoning, eventSummary + ".delta": partSummary,
	eventArguments + ".delta": "",
}

// NewStreamReader implements dialect.Codec.
func (Codec) NewStreamReader() dialect.StreamReader { return &streamReader{} }

// streamReader collects an answer that arrives in pieces:
//
//	created in_progress (item added (delta* done)* item done)* (completed | incomplete | failed)
//
// The last event repeats the whole answer, so that the collected pieces only matter if it does not come. The places of
// items and parts may skip some: servers count them in different ways.
type streamReader struct {
	dialect.Progress
	whole  response
	items  dialect.Places[growing]
	pieces dialect.Pieces
}

// growing is an item that grows.
type growing struct {
	item item
	// texts and summary are its parts so far.
	texts, summary growingParts
	arguments      strings.Builder
	// call is the index of a call among the calls.
	call int32
	// done means that the item is whole.
	done bool
}

// growingParts are parts that grow.
type growingParts struct {
	parts dialect.Places[growingText]
	// said is the text of all pieces, and next the place after the last part.
	said strings.Builder
	next int
}

// growingText is the text of a part, and the type of the part.
type growingText struct {
	kind string
	strings.Builder
}

// event is an event on the wire.
type event struct {
	Type         string             `json:"type"`
	Response     jsonread.Raw       `json:"response"`
	OutputIndex  int                `json:"output_index"`
	ContentIndex int                `json:"content_index"`
	SummaryIndex int                `json:"summary_index"`
	Item         *item              `json:"item"`
	Delta        jsonread.TextOrRaw `json:"delta"`
}

// Add implements dialect.StreamReader.
func (s *streamReader) Add(got dialect.Event) ([]*modelv1.GenerateDelta, error) {
	var e event
	err := jsonread.Unmarshal(got.Data, &e)
	if err != nil {
		return nil, malformed(err)
	}
	switch e.Type = cmp.Or(e.Type, got.Type); e.Type {
	case eventError:
		return nil, Codec{}.DecodeError(got.Data)
	case eventCreated, eventInProgress, eventCompleted, eventIncomplete, eventFailed:
		return nil, s.state(&e)
	case eventAdded, eventItemDone:
		err = s.item(&e)
	default:
		if kind, grows := grown[e.Type]; grows {
			err = s.grow(&e, kind)
		}
	}
	if err != nil {
		return nil, malformed(err)
	}
	return s.pieces.Take(), nil
}

// state takes an event that contains the answer in its present state.
func (s *streamReader) state(e *event) error {
	var now response
	if err := jsonread.Unmarshal(e.Response, &now); err != nil {
		return malformed(err)
	}
	s.whole = now
	switch e.Type {
	case eventFailed:
		return Codec{}.DecodeError(e.Response)
	case eventCompleted, eventIncomplete:
		s.Begun, s.Ended, s.whole.Status = true, true, strings.TrimPrefix(e.Type, eventPrefix)
	}
	return nil
}

// item takes an item that begins or is whole, and adds what it contains beyond its pieces.
func (s *streamReader) item(e *event) error {
	if e.Item == nil {
		return fmt.Errorf("%s has no item", e.Type)
	}
	g, _, err := s.items.At(e.OutputIndex, maxItems, "an item")
	if err != nil {
		return err
	}
	s.Begun = true // The server's first events only state that it has accepted the request.
	if e.Item.Type == typeCall && g.item.Type != typeCall {
		g.call = s.pieces.Call(e.Item.CallID, e.Item.Name, "")
	}
	whole := e.Type == eventItemDone && !g.done
	g.item, g.done = *e.Item, e.Type == eventItemDone
	if call := g.item.computerCall(); call != nil && whole {
		s.pieces.Call(call.GetId(), call.GetFunction(), call.GetArgumentsJson())
	}
	if err := g.rest(&s.pieces); err != nil {
		return err
	}
	if g.done && g.item.Type == typeReasoning && g.item.Seal != "" {
		s.pieces.Part(g.item.reasoning())
	}
	if !whole {
		return nil
	}
	for _, part := range g.item.parts() {
		if part.GetToolUse() != nil || len(part.GetText().GetCitations()) > 0 {
			s.pieces.Part(part) // what a tool of the server did, or a text that has sources
		}
	}
	return nil
}

// grow takes a piece of an item, of a part of a kind or of arguments.
func (s *streamReader) grow(e *event, kind string) error {
	g := s.items.Get(e.OutputIndex)
	if g == nil {
		return fmt.Errorf("a piece of item %d, which has not begun", e.OutputIndex)
	}
	switch kind {
	case "":
		g.addArguments(e.Delta.Text, &s.pieces)
		return nil
	case partSummary:
		return g.summary.add(e.SummaryIndex, kind, e.Delta.Text, &s.pieces)
	default:
		return g.texts.add(e.ContentIndex, kind, e.Delta.Text, &s.pieces)
	}
}

func (g *growing) addArguments(piece string, pieces *dialect.Pieces) {
	g.arguments.WriteString(piece)
	if g.item.Type == typeCall {
		pieces.Arguments(g.call, piece)
	}
}

// add adds a piece to the part at a place, which may be a new one.
func (g *growingParts) add(place int, kind, piece string, pieces *dialect.Pieces) error {
	if piece == "" && place >= 0 && place < maxParts {
		return nil
	}
	text, isNew, err := g.parts.At(place, maxParts, "a part")
	if err != nil {
		return err
	}
	shown := piece
	if isNew {
		if kind == partSummary && g.parts.Len() > 1 {
			shown = summaryBreak + piece
		}
		text.kind, g.next = kind, max(g.next, place+1)
	}
	text.WriteString(piece)
	g.said.WriteString(piece)
	if kind == partSummary || kind == partReasoning {
		pieces.Reasoning(shown)
	} else {
		pieces.Text(shown)
	}
	return nil
}

// rest adds what the item contains beyond its pieces: some servers send items without pieces. Texts are compared in
// their order, since the places of the pieces may be others.
func (g *growing) rest(pieces *dialect.Pieces) (err error) {
	grow := func(parts *growingParts, said *dialect.Remainder, kind, full string) {
		missing, begun := said.Of(full)
		place := parts.next
		if begun {
			place--
		}
		if missing != "" && err == nil {
			err = parts.add(place, kind, missing, pieces)
		}
	}
	texts, summary := dialect.Remainder{Said: g.texts.said.String()}, dialect.Remainder{Said: g.summary.said.String()}
	for _, p := range g.item.Content {
		switch p.Type {
		case partText, partReasoning:
			grow(&g.texts, &texts, p.Type, p.Text)
		case partRefusal:
			grow(&g.texts, &texts, p.Type, p.Refusal)
		}
	}
	for _, p := range g.item.Summary {
		grow(&g.summary, &summary, partSummary, p.Text)
	}
	if rest, more := strings.CutPrefix(string(g.item.Arguments), g.arguments.String()); more {
		g.addArguments(rest, pieces)
	}
	return err
}

// Usage implements dialect.StreamReader.
func (s *streamReader) Usage() *modelv1.ModelUsage { return s.whole.Usage.message() }

// Response implements dialect.StreamReader. Some servers leave the items out of the last event.
func (s *streamReader) Response() dialect.Response {
	if !s.Ended || len(s.whole.Items) == 0 {
		s.whole.Items = nil
		for it := range s.items.All() {
			s.whole.Items = append(s.whole.Items, it.whole())
		}
	}
	return &s.whole
}

// whole returns the item as far as it came.
func (g *growing) whole() item {
	if g.done {
		return g.item
	}
	it := g.item
	it.Whole = nil
	it.Content, it.Summary, it.Arguments = nil, nil, dialect.Arguments(g.arguments.String())
	for text := range g.texts.parts.All() {
		it.Content = append(it.Content, part{Type: text.kind, Text: text.String(), Refusal: text.String()})
	}
	for text := range g.summary.parts.All() {
		it.Summary = append(it.Summary, part{Type: text.kind, Text: text.String()})
	}
	return it
}
