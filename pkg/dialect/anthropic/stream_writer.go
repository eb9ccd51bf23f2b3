package anthropic

import (
	"cmp"
	"encoding/json"
	"io"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
	"github.com/evalfleet/evalfleet/pkg/json/orderedjson"
)

// streamWriter writes an answer for a client as it arrives, each event with one write:
//
//	message_start (content_block_start content_block_delta* content_block_stop)* message_delta message_stop
type streamWriter struct {
	w       io.Writer
	meta    dialect.ResponseMeta
	started bool
	err     error
	// next is the place of the next block; open is the kind of the last one while it is not closed.
	next int
	open blockKind
	// What was already written, so that Close adds only the rest. sealed means that reasoning came as a whole part.
	text, reasoning strings.Builder
	sealed          bool
	calls           map[int32]*sentCall
	// encoder writes the data of an event, and frame is the event. All are used again.
	encoder     *encoder
	data, frame []byte
}

// sentCall is a call of which something was sent.
type sentCall struct {
	place int
	// arguments reports whether any of them were sent.
	arguments bool
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
	return &streamWriter{w: w, meta: meta, calls: map[int32]*sentCall{}, encoder: newEncoder()}
}

// start writes the start event, once.
func (s *streamWriter) start() error {
	if s.started {
		return s.err
	}
	s.started = true
	return s.event("message_start", func(e *encoder) {
		e.Body.Key("message")
		e.head(s.meta.ID, s.meta.Model, func() { e.Body.Raw("[]") })
		e.Body.RawMember("stop_reason", "null")
		e.Body.RawMember("stop_sequence", "null")
		e.usage(&modelv1.ModelUsage{})
		e.Body.EndObject()
	})
}

// Ping implements dialect.StreamWriter.
func (s *streamWriter) Ping() error { return s.event("ping", nil) }

// Write implements dialect.StreamWriter. Pieces of other choices than the first are left out: the format knows but one.
func (s *streamWriter) Write(d *modelv1.GenerateDelta) error {
	if d.GetChoice() != 0 {
		return s.err
	}
	_ = s.start()
	switch piece := d.GetPiece().(type) {
	case *modelv1.GenerateDelta_Text:
		s.writeText(piece.Text)
	case *modelv1.GenerateDelta_Reasoning:
		s.writeThinking(piece.Reasoning)
	case *modelv1.GenerateDelta_ToolCall:
		s.writeCall(piece.ToolCall)
	case *modelv1.GenerateDelta_Part:
		s.writePart(piece.Part)
	}
	return s.err
}

// Close implements dialect.StreamWriter. An output without choices is an empty answer.
func (s *streamWriter) Close(output *modelv1.ModelOutput) error {
	s.meta.Model = cmp.Or(s.meta.Model, output.GetModel())
	_ = s.start()
	message := chat.FirstMessage(output)
	if message != nil {
		s.rest(message)
	}
	s.closeBlock()
	choice := &modelv1.Choice{StopReason: modelv1.StopReason_STOP_REASON_STOP}
	if message != nil {
		choice = output.GetChoices()[0]
	}
	_ = s.event("message_delta", func(e *encoder) {
		e.Body.BeginObjectMember("delta")
		e.stop(choice)
		e.Body.EndObject()
		e.usage(output.GetUsage())
	})
	return s.event("message_stop", nil)
}

// Fail implements dialect.StreamWriter.
func (s *streamWriter) Fail(f dialect.Failure) error {
	return s.send("error", Codec{}.AppendError(nil, f))
}

// rest writes what the pieces did not contain: everything if there were none.
func (s *streamWriter) rest(m *modelv1.ChatMessage) {
	texts, reasoning := dialect.Remainder{Said: s.text.String()}, dialect.Remainder{Said: s.reasoning.String(), All: s.sealed}
	for _, part := range chat.Parts(m.GetContent()) {
		if !answerable(part) {
			continue
		}
		switch {
		case part.GetText() != nil:
			text, begun := texts.Of(part.GetText().GetText())
			if !begun {
				s.closeBlock() // Each text of an answer is a block of its own.
			}
			s.writeText(text)
		case part.GetReasoning() != nil:
			if text, begun := reasoning.Of(asAnswer(part).GetReasoning().GetSummary()); begun {
				s.writeThinking(text)
			} else {
				s.writePart(part)
			}
		default:
			s.writePart(part)
		}
	}
	for i, call := range m.GetToolCalls() {
		sent := s.calls[int32(i)]
		piece := &modelv1.ToolCallDelta{Index: int32(i), Arguments: dialect.ArgumentsOf(call)}
		switch {
		case sent == nil:
			piece.Id, piece.Function = call.GetId(), call.GetFunction()
			s.writeCall(piece)
		case !sent.arguments:
			s.writeCall(piece)
		}
	}
}

func (s *streamWriter) writeText(text string) {
	if text == "" {
		return
	}
	s.text.WriteString(text)
	s.begin(textBlock, `{"type":"text","text":""}`)
	s.delta(s.next-1, "text_delta", "text", text)
}

func (s *streamWriter) writeThinking(text string) {
	if text == "" {
		return
	}
	s.reasoning.WriteString(text)
	s.begin(thinkingBlock, `{"type":"thinking","thinking":"","signature":""}`)
	s.delta(s.next-1, "thinking_delta", "thinking", text)
}

// writeCall writes a piece of a call. Pieces of a call whose block is closed bear its place all the same.
func (s *streamWriter) writeCall(piece *modelv1.ToolCallDelta) {
	sent := s.calls[piece.GetIndex()]
	if sent == nil {
		call := withID(&toolv1.ToolCall{Id: piece.GetId(), Function: piece.GetFunction()})
		s.closeBlock()
		sent = &sentCall{place: s.next}
		s.calls[piece.GetIndex()] = sent
		first := newEncoder()
		first.block(&block{call: call})
		s.begin(callBlock, first.Body.String())
	}
	if piece.GetArguments() != "" {
		sent.arguments = true
		s.delta(sent.place, "input_json_delta", "partial_json", piece.GetArguments())
	}
}

// writePart writes a part as a whole. The seal of reasoning whose pieces were sent closes their block.
func (s *streamWriter) writePart(part *contentv1.Content) {
	if r := part.GetReasoning(); r != nil {
		s.sealed = true
		whole := asAnswer(part).GetReasoning()
		if s.open != thinkingBlock && whole.Summary != nil {
			s.writeThinkingBlock(whole.GetSummary())
		}
		if s.open == thinkingBlock {
			if seal := whole.GetReasoning(); seal != "" {
				s.delta(s.next-1, "signature_delta", "signature", seal)
			}
			s.closeBlock()
			return
		}
	}
	if !answerable(part) {
		return
	}
	s.writeBlocks(asAnswer(part))
}

// writeThinkingBlock opens a block of thinking and writes it, also if it shows nothing.
func (s *streamWriter) writeThinkingBlock(text string) {
	s.begin(thinkingBlock, `{"type":"thinking","thinking":"","signature":""}`)
	if text != "" {
		s.delta(s.next-1, "thinking_delta", "thinking", text)
	}
}

// writeBlocks writes the blocks of a part, each whole.
func (s *streamWriter) writeBlocks(part *contentv1.Content) {
	whole := newEncoder()
	whole.blocks(partBlock(part))
	var blocks []json.RawMessage
	_ = json.Unmarshal(whole.Body.Bytes(), &blocks)
	for _, raw := range blocks {
		s.writeBlock(raw)
	}
}

// writeBlock writes a whole block. Clients assemble the input of a call, also of a server's call, from its pieces
// alone.
func (s *streamWriter) writeBlock(raw json.RawMessage) {
	object, err := orderedjson.DecodeObject(raw)
	input, called := object.Get("input")
	if err != nil || !called {
		s.begin(noBlock, string(raw))
		s.stop()
		return
	}
	object.Set("input", &orderedjson.Object{})
	s.begin(noBlock, string(orderedjson.Append(nil, object)))
	s.delta(s.next-1, "input_json_delta", "partial_json", string(orderedjson.Append(nil, input)))
	s.stop()
}

// begin opens a block with its initial content, unless one of its kind is open.
func (s *streamWriter) begin(kind blockKind, first string) {
	if kind != noBlock && s.open == kind && kind != callBlock {
		return
	}
	s.closeBlock()
	place := s.next
	s.next, s.open = s.next+1, kind
	_ = s.event("content_block_start", func(e *encoder) {
		e.Body.IntMember("index", int64(place))
		e.Body.RawMember("content_block", first)
	})
}

func (s *streamWriter) delta(place int, kind, name, value string) {
	_ = s.event("content_block_delta", func(e *encoder) {
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
	_ = s.event("content_block_stop", func(e *encoder) { e.Body.IntMember("index", int64(s.next-1)) })
}

// event writes an event with these members.
func (s *streamWriter) event(name string, members func(*encoder)) error {
	s.encoder.Body = jsonwrite.Append(s.data[:0], 0)
	s.encoder.Body.BeginObject()
	s.encoder.Body.TextMember("type", name)
	if members != nil {
		members(s.encoder)
	}
	s.encoder.Body.EndObject()
	s.data = s.encoder.Body.Bytes()
	return s.send(name, s.data)
}

func (s *streamWriter) send(name string, data []byte) error {
	if s.err == nil {
		s.frame = dialect.AppendEvent(s.frame[:0], name, data)
		_, s.err = s.w.Write(s.frame)
	}
	return s.err
}
