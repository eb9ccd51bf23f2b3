package anthropic

import (
	"cmp"
	"encoding/json"
	"io"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/citation"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
	"github.com/evalfleet/evalfleet/pkg/json/orderedjson"
)

// streamWriter writes an answer for a client as it arrives:
//
//	message_start (content_block_start content_block_delta* content_block_stop)* message_delta message_stop
type streamWriter struct {
	*dialect.EventWriter
	meta dialect.ResponseMeta
	// next is the place of the next block; open is the kind of the last one while it is not closed.
	next int
	open blockKind
	// said is what was already written, and calls are the places of calls by index.
	said  dialect.Said
	calls map[int32]int
	// encoder writes the events.
	encoder *encoder
}

// blockKind is the kind of the open block.
type blockKind int

const (
	noBlock blockKind = iota
	textBlock
	thinkingBlock
	callBlock
)

// NewStreamWriter implements dialect.Codec.
func (Codec) NewStreamWriter(w io.Writer, meta dialect.ResponseMeta) dialect.StreamWriter {
	meta.ID = cmp.Or(meta.ID, newID(idPrefix))
	return &streamWriter{EventWriter: dialect.NewEventWriter(w), meta: meta, calls: map[int32]int{}, encoder: newEncoder(nil)}
}

// WriteBegin implements dialect.PieceWriter.
func (s *streamWriter) WriteBegin() {
	s.event("message_start", func(e *encoder) {
		e.Body.Key("message")
		e.head(s.meta.ID, s.meta.Model)
		e.Body.Raw("[]")
		e.Body.RawMember("stop_reason", "null")
		e.Body.RawMember("stop_sequence", "null")
		e.usage(&modelv1.ModelUsage{})
		e.Body.EndObject()
	})
}

// Ping implements dialect.StreamWriter.
func (s *streamWriter) Ping() error {
	s.event("ping", func(*encoder) {})
	return s.Flush()
}

// Write implements dialect.StreamWriter. The format knows but one choice.
func (s *streamWriter) Write(d *modelv1.GenerateDelta) error {
	s.said.Add(d, s)
	return s.Flush()
}

// Close implements dialect.StreamWriter. An output without choices is an empty answer.
func (s *streamWriter) Close(output *modelv1.ModelOutput) error {
	s.meta.Model = cmp.Or(s.meta.Model, output.GetModel())
	s.said.Begin(s)
	choice := &modelv1.Choice{StopReason: modelv1.StopReason_STOP_REASON_STOP}
	if message := chat.FirstMessage(output); message != nil {
		choice = output.GetChoices()[0]
		s.rest(message)
	}
	s.closeBlock()
	s.event("message_delta", func(e *encoder) {
		e.Body.BeginObjectMember("delta")
		e.stop(choice)
		e.Body.EndObject()
		e.usage(output.GetUsage())
	})
	s.event("message_stop", func(*encoder) {})
	return s.Flush()
}

// Fail implements dialect.StreamWriter.
func (s *streamWriter) Fail(f dialect.Failure) error {
	s.Data("error", Codec{}.AppendError(nil, f))
	return s.Flush()
}

// rest writes what the pieces did not contain: everything if there were none. Each text of an answer is a block of its
// own.
func (s *streamWriter) rest(m *modelv1.ChatMessage) {
	for part, rest := range s.said.Rest(dialect.AnswerParts(m), dialect.Readable) {
		switch text := part.GetText(); {
		case text != nil:
			if !rest.Begun {
				s.closeBlock()
			}
			if s.WriteText(rest.Text); !rest.Ended {
				s.cite(text)
			}
		case rest.Begun:
			s.WriteReasoning(rest.Text)
		default:
			s.WritePart(part)
		}
	}
	for piece := range s.said.RestOfCalls(m.GetToolCalls()) {
		s.WriteCall(piece)
	}
}

// WriteText implements dialect.PieceWriter.
func (s *streamWriter) WriteText(text string) {
	if text != "" {
		s.begin(textBlock, `{"type":"text","text":""}`)
		s.delta(s.next-1, "text_delta", "text", text)
	}
}

// WriteReasoning implements dialect.PieceWriter.
func (s *streamWriter) WriteReasoning(text string) {
	if text != "" {
		s.begin(thinkingBlock, emptyThinking)
		s.delta(s.next-1, "thinking_delta", "thinking", text)
	}
}

// emptyThinking begins a block of thinking.
const emptyThinking = `{"type":"thinking","thinking":"","signature":""}`

// WriteCall implements dialect.PieceWriter. Pieces of a call whose block is closed bear its place all the same.
func (s *streamWriter) WriteCall(piece *modelv1.ToolCallDelta) {
	place, sent := s.calls[piece.GetIndex()]
	if !sent {
		place = s.next
		s.calls[piece.GetIndex()] = place
		first := newEncoder(&jsonwrite.Writer{})
		first.block(&block{call: withID(&toolv1.ToolCall{Id: piece.GetId(), Function: piece.GetFunction()})})
		s.begin(callBlock, first.Body.String())
	}
	if piece.GetArguments() != "" {
		s.delta(place, "input_json_delta", "partial_json", piece.GetArguments())
	}
}

// cite writes the sources of a text that has ended, and closes its block.
func (s *streamWriter) cite(text *contentv1.Text) {
	if len(text.GetCitations()) == 0 || s.open != textBlock {
		return
	}
	for _, c := range citation.ForAnthropic(text.GetCitations()) {
		w := jsonwrite.NewWriter(256)
		citation.WriteAnthropic(w, []*contentv1.Citation{c})
		if one := strings.TrimSuffix(strings.TrimPrefix(w.String(), "["), "]"); one != "" {
			s.event("content_block_delta", func(e *encoder) {
				e.Body.IntMember("index", int64(s.next-1))
				e.Body.BeginObjectMember("delta")
				e.Body.TextMember("type", "citations_delta")
				e.Body.RawMember("citation", one)
				e.Body.EndObject()
			})
		}
	}
	s.closeBlock()
}

// WritePart implements dialect.PieceWriter. The seal of reasoning whose pieces were sent closes their block, and so do
// the sources of a text.
func (s *streamWriter) WritePart(part *contentv1.Content) {
	if part.GetText() != nil {
		s.cite(part.GetText())
		return
	}
	if part.GetReasoning() != nil {
		s.said.Sealed = true
		whole := asAnswer(part).GetReasoning()
		if s.open != thinkingBlock && whole.Summary != nil {
			s.begin(thinkingBlock, emptyThinking)
			if text := whole.GetSummary(); text != "" {
				s.delta(s.next-1, "thinking_delta", "thinking", text)
			}
		}
		if s.open == thinkingBlock {
			if seal := whole.GetReasoning(); seal != "" {
				s.delta(s.next-1, "signature_delta", "signature", seal)
			}
			s.closeBlock()
			return
		}
	}
	if said := asAnswer(part); said != nil {
		s.writeBlocks(said)
	}
}

// writeBlocks writes the blocks of a part, each whole. Clients assemble the input of a call, also of a server's call,
// from its pieces alone.
func (s *streamWriter) writeBlocks(part *contentv1.Content) {
	whole := newEncoder(&jsonwrite.Writer{})
	whole.blocks(partBlock(part))
	var blocks []json.RawMessage
	_ = json.Unmarshal(whole.Body.Bytes(), &blocks)
	for _, raw := range blocks {
		object, err := orderedjson.DecodeObject(raw)
		input, called := object.Get("input")
		if err != nil || !called {
			s.begin(noBlock, string(raw))
		} else {
			object.Set("input", &orderedjson.Object{})
			s.begin(noBlock, string(orderedjson.Append(nil, object)))
			s.delta(s.next-1, "input_json_delta", "partial_json", string(orderedjson.Append(nil, input)))
		}
		s.stop()
	}
}

// begin opens a block with its initial content, unless one of its kind is open.
func (s *streamWriter) begin(kind blockKind, first string) {
	if kind != noBlock && s.open == kind && kind != callBlock {
		return
	}
	s.closeBlock()
	s.event("content_block_start", func(e *encoder) {
		e.Body.IntMember("index", int64(s.next))
		e.Body.RawMember("content_block", first)
	})
	s.next, s.open = s.next+1, kind
}

func (s *streamWriter) delta(place int, kind, name, value string) {
	s.event("content_block_delta", func(e *encoder) {
		e.Body.IntMember("index", int64(place))
		e.Body.TextObjectMember("delta", "type", kind, name, value)
	})
}

// closeBlock closes the open block, if there is one.
func (s *streamWriter) closeBlock() {
	if s.open != noBlock {
		s.stop()
	}
}

// stop ends the last block.
func (s *streamWriter) stop() {
	s.open = noBlock
	s.event("content_block_stop", func(e *encoder) { e.Body.IntMember("index", int64(s.next-1)) })
}

// event adds an event with these members.
func (s *streamWriter) event(name string, members func(*encoder)) {
	s.Event(name, func(w *jsonwrite.Writer) {
		w.TextMember("type", name)
		s.encoder.Body = w
		members(s.encoder)
	})
}
