package mistralconversations

import (
	"cmp"
	"io"
	"time"

	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/mistral"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
)

// streamWriter writes an answer for a client as it arrives:
//
//	started (message delta | call delta | tool started, tool done)* done
type streamWriter struct {
	*dialect.EventWriter
	meta dialect.ResponseMeta
	// entries counts the entries.
	entries int
	// open is the message that grows; nil if there is none.
	open *openMessage
	// calls are the calls by index.
	calls map[int32]*openCall
	// said is what was already written.
	said dialect.Said
}

// openMessage is a message that grows.
type openMessage struct {
	id    string
	place int
	// chunk is the kind of its last chunk, and index the place of that.
	chunk kind
	index int
}

// kind is the kind of a chunk.
type kind int

const (
	none kind = iota
	text
	thought
	other
)

// openCall is a call that grows.
type openCall struct {
	id, callID, function string
	place                int
	begun                bool
}

// NewStreamWriter implements dialect.Codec.
func (Codec) NewStreamWriter(w io.Writer, meta dialect.ResponseMeta) dialect.StreamWriter {
	meta.ID = cmp.Or(meta.ID, newID(idPrefix))
	return &streamWriter{EventWriter: dialect.NewEventWriter(w), meta: meta, calls: map[int32]*openCall{}}
}

// WriteBegin implements dialect.PieceWriter.
func (s *streamWriter) WriteBegin() {
	s.event(eventStarted, func(w *jsonwrite.Writer) { w.TextMember("conversation_id", s.meta.ID) })
}

// Write implements dialect.StreamWriter. The format knows but one choice.
func (s *streamWriter) Write(d *modelv1.GenerateDelta) error {
	s.said.Add(d, s)
	return s.Flush()
}

// WriteText implements dialect.PieceWriter.
func (s *streamWriter) WriteText(piece string) { s.grow(text, false, piece) }

// WriteReasoning implements dialect.PieceWriter.
func (s *streamWriter) WriteReasoning(piece string) { s.grow(thought, false, piece) }

// WritePart implements dialect.PieceWriter.
func (s *streamWriter) WritePart(part *contentv1.Content) {
	if part.GetText() == nil && part.GetReasoning() == nil {
		s.part(part)
	}
}

// Close implements dialect.StreamWriter. An output without choices is an empty answer.
func (s *streamWriter) Close(output *modelv1.ModelOutput) error {
	s.meta.Model = cmp.Or(s.meta.Model, output.GetModel())
	s.said.Begin(s)
	if len(output.GetChoices()) > 0 {
		s.rest(output.GetChoices()[0].GetMessage())
	}
	s.event(eventDone, func(w *jsonwrite.Writer) {
		w.Key("usage")
		mistral.WriteUsage(w, output.GetUsage())
	})
	return s.Flush()
}

// Fail implements dialect.StreamWriter.
func (s *streamWriter) Fail(f dialect.Failure) error {
	s.Data(eventError, appendFailure(nil, f))
	return s.Flush()
}

// rest writes what the pieces did not contain: everything if there were none.
func (s *streamWriter) rest(m *modelv1.ChatMessage) {
	for part, rest := range s.said.Rest(dialect.AnswerParts(m), mistral.Readable) {
		switch p := part.GetPart().(type) {
		case *contentv1.Content_Text:
			s.grow(text, !rest.Begun, rest.Text)
			for _, citation := range p.Text.GetCitations() {
				if citation.GetUrl() != "" {
					s.chunk(other, true, func(w *jsonwrite.Writer) { mistral.WriteReference(w, citation) })
				}
			}
		case *contentv1.Content_Reasoning:
			s.grow(thought, !rest.Begun, rest.Text)
		default:
			s.part(part)
		}
	}
	for i, call := range m.GetToolCalls() {
		piece := &modelv1.ToolCallDelta{Index: int32(i), Id: call.GetId(), Function: call.GetFunction()}
		if open := s.calls[int32(i)]; open == nil || !open.begun {
			piece.Arguments = dialect.ArgumentsOf(call)
			s.WriteCall(piece)
		}
	}
}

// grow writes a piece of a text or of reasoning, in a chunk of its own if it is new.
func (s *streamWriter) grow(k kind, isNew bool, piece string) {
	if piece == "" {
		return
	}
	s.chunk(k, isNew, func(w *jsonwrite.Writer) {
		if k == thought {
			mistral.WriteThinking(w, piece)
		} else {
			w.Text(piece)
		}
	})
}

// chunk writes a piece of a message.
func (s *streamWriter) chunk(k kind, isNew bool, content func(*jsonwrite.Writer)) {
	if s.open == nil {
		s.open = &openMessage{id: newID(messageID), place: s.entry()}
	}
	if s.open.chunk != none && (isNew || s.open.chunk != k) {
		s.open.index++
	}
	s.open.chunk = k
	s.piece(eventMessage, s.open.id, s.open.place, func(w *jsonwrite.Writer) {
		w.IntMember("content_index", int64(s.open.index))
		w.TextMember("role", "assistant")
		w.Key("content")
		content(w)
	})
}

// entry begins an entry and returns its place.
func (s *streamWriter) entry() int {
	s.entries++
	return s.entries - 1
}

// part writes a part that has no pieces: an image within the message, or what a tool of the server did.
func (s *streamWriter) part(part *contentv1.Content) {
	switch p := part.GetPart().(type) {
	case *contentv1.Content_Image:
		s.chunk(other, true, func(w *jsonwrite.Writer) { mistral.WriteImage(w, p.Image) })
	case *contentv1.Content_ToolUse:
		s.open = nil
		id, place := cmp.Or(p.ToolUse.GetId(), newID(toolID)), s.entry()
		s.piece(toolStarted, id, place, func(w *jsonwrite.Writer) {
			w.TextMember("name", nameOf(p.ToolUse))
			w.TextMember("arguments", p.ToolUse.GetArguments())
		})
		s.piece(toolDone, id, place, func(w *jsonwrite.Writer) {
			w.TextMember("name", nameOf(p.ToolUse))
			writeInfo(w, p.ToolUse)
		})
	}
}

// WriteCall implements dialect.PieceWriter: it writes a piece of a call.
func (s *streamWriter) WriteCall(piece *modelv1.ToolCallDelta) {
	c := s.calls[piece.GetIndex()]
	if c == nil {
		s.open = nil
		c = &openCall{id: newID(callID), place: s.entry()}
		s.calls[piece.GetIndex()] = c
	}
	c.callID, c.function = cmp.Or(c.callID, piece.GetId()), cmp.Or(c.function, piece.GetFunction())
	c.begun = c.begun || piece.GetArguments() != ""
	s.piece(eventCall, c.id, c.place, func(w *jsonwrite.Writer) {
		w.TextMember("tool_call_id", c.callID)
		w.TextMember("name", c.function)
		w.TextMember("arguments", piece.GetArguments())
	})
}

// piece writes an event about an entry.
func (s *streamWriter) piece(name, id string, place int, members func(*jsonwrite.Writer)) {
	s.event(name, func(w *jsonwrite.Writer) {
		w.IntMember("output_index", int64(place))
		w.TextMember("id", id)
		w.TextMember("model", s.meta.Model)
		members(w)
	})
}

// event adds an event with these members.
func (s *streamWriter) event(name string, members func(*jsonwrite.Writer)) {
	s.Event(name, func(w *jsonwrite.Writer) {
		w.TextMember("type", name)
		if s.meta.Created != 0 {
			w.TextMember("created_at", time.Unix(s.meta.Created, 0).UTC().Format(time.RFC3339))
		}
		members(w)
	})
}
