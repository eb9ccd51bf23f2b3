package anthropic

import (
	"cmp"
	"encoding/json"
	"io"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/orderedjson"
)

// StreamWriter writes an answer for a client as it comes: Start, then Write for each piece, then Close or Fail. Each event is one write. It is not for
// concurrent use.
//
//	message_start (content_block_start content_block_delta* content_block_stop)* message_delta message_stop
type StreamWriter struct {
	w       io.Writer
	meta    ResponseMeta
	started bool
	err     error
	// next is the place of the next block; open is the kind of the last one while it is not closed.
	next int
	open blockKind
	// What was said already, so that Close adds only the rest.
	text, reasoning bool
	calls           map[int32]*sentCall
}

// sentCall is a call of which something was sent.
type sentCall struct {
	place int
	// arguments says whether any of them were sent.
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

// NewStreamWriter returns a writer of one answer. Where meta names no id, it makes one.
func NewStreamWriter(w io.Writer, meta ResponseMeta) *StreamWriter {
	meta.ID = cmp.Or(meta.ID, newID("msg_"))
	return &StreamWriter{w: w, meta: meta, calls: map[int32]*sentCall{}}
}

// Start tells the client that an answer comes. Write and Close do so where it was not done.
func (s *StreamWriter) Start() error {
	if s.started {
		return s.err
	}
	s.started = true
	return s.event("message_start", func(e *encoder) {
		e.w.Key("message")
		e.head(s.meta.ID, s.meta.Model, func() { e.w.Raw("[]") })
		e.w.RawMember("stop_reason", "null")
		e.w.RawMember("stop_sequence", "null")
		e.usage(&modelv1.ModelUsage{})
		e.w.EndObject()
	})
}

// Ping writes an event that says nothing, so that a client that waits knows that the answer still comes.
func (s *StreamWriter) Ping() error { return s.event("ping", nil) }

// Write writes a piece of the answer. Pieces of other choices than the first are left out: the format knows but one. It fails when the client has gone,
// and does so from then on.
func (s *StreamWriter) Write(d *modelv1.GenerateDelta) error {
	if d.GetChoice() != 0 {
		return s.err
	}
	_ = s.Start()
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

// Close writes what of the answer was not said piece by piece, and ends the stream.
func (s *StreamWriter) Close(output *modelv1.ModelOutput) error {
	s.meta.Model = cmp.Or(s.meta.Model, output.GetModel())
	_ = s.Start()
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
		e.w.Key("delta")
		e.w.BeginObject()
		e.stop(choice)
		e.w.EndObject()
		e.usage(output.GetUsage())
	})
	return s.event("message_stop", nil)
}

// Fail ends the stream with an error.
func (s *StreamWriter) Fail(f dialect.Failure) error {
	return s.send("error", EncodeError(f))
}

// rest writes what the pieces did not say: all of it, where there were none.
func (s *StreamWriter) rest(m *modelv1.ChatMessage) {
	text, reasoning := s.text, s.reasoning
	for _, part := range chat.Parts(m.GetContent()) {
		switch {
		case !answerable(part), part.GetText() != nil && text, part.GetReasoning() != nil && reasoning:
		case part.GetText() != nil:
			s.closeBlock() // each text of an answer is a block of its own
			s.writeText(part.GetText().GetText())
		default:
			s.writePart(part)
		}
	}
	for i, call := range m.GetToolCalls() {
		sent := s.calls[int32(i)]
		piece := &modelv1.ToolCallDelta{Index: int32(i), Arguments: cmp.Or(call.GetArgumentsJson(), "{}")}
		switch {
		case sent == nil:
			piece.Id, piece.Function = call.GetId(), call.GetFunction()
			s.writeCall(piece)
		case !sent.arguments:
			s.writeCall(piece)
		}
	}
}

func (s *StreamWriter) writeText(text string) {
	if text == "" {
		return
	}
	s.text = true
	s.begin(textBlock, `{"type":"text","text":""}`)
	s.delta(s.next-1, "text_delta", "text", text)
}

func (s *StreamWriter) writeThinking(text string) {
	if text == "" {
		return
	}
	s.reasoning = true
	s.begin(thinkingBlock, `{"type":"thinking","thinking":"","signature":""}`)
	s.delta(s.next-1, "thinking_delta", "thinking", text)
}

// writeCall writes a piece of a call. Pieces of a call whose block is closed bear its place all the same.
func (s *StreamWriter) writeCall(piece *modelv1.ToolCallDelta) {
	sent := s.calls[piece.GetIndex()]
	if sent == nil {
		call := withID(&toolv1.ToolCall{Id: piece.GetId(), Function: piece.GetFunction()})
		s.closeBlock()
		sent = &sentCall{place: s.next}
		s.calls[piece.GetIndex()] = sent
		first := newEncoder()
		first.block(&block{call: call})
		s.begin(callBlock, first.w.String())
	}
	if piece.GetArguments() != "" {
		sent.arguments = true
		s.delta(sent.place, "input_json_delta", "partial_json", piece.GetArguments())
	}
}

// writePart writes a part as a whole. The seal of reasoning whose pieces were sent closes their block.
func (s *StreamWriter) writePart(part *contentv1.Content) {
	if r := part.GetReasoning(); r != nil {
		s.reasoning = true
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

// writeThinkingBlock opens a block of thinking and writes it, also where it shows nothing.
func (s *StreamWriter) writeThinkingBlock(text string) {
	s.begin(thinkingBlock, `{"type":"thinking","thinking":"","signature":""}`)
	if text != "" {
		s.delta(s.next-1, "thinking_delta", "thinking", text)
	}
}

// writeBlocks writes the blocks of a part, which come whole.
func (s *StreamWriter) writeBlocks(part *contentv1.Content) {
	whole := newEncoder()
	whole.blocks(partBlock(part))
	var blocks []json.RawMessage
	_ = json.Unmarshal(whole.w.Bytes(), &blocks)
	for _, raw := range blocks {
		s.writeBlock(raw)
	}
}

// writeBlock writes a block that comes whole. Clients make the input of a call, also of one that the server makes, of its pieces alone.
func (s *StreamWriter) writeBlock(raw json.RawMessage) {
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

// begin opens a block with what it begins with, unless one of its kind is open.
func (s *StreamWriter) begin(kind blockKind, first string) {
	if kind != noBlock && s.open == kind && kind != callBlock {
		return
	}
	s.closeBlock()
	place := s.next
	s.next, s.open = s.next+1, kind
	_ = s.event("content_block_start", func(e *encoder) {
		e.w.IntMember("index", int64(place))
		e.w.RawMember("content_block", first)
	})
}

func (s *StreamWriter) delta(place int, kind, name, value string) {
	_ = s.event("content_block_delta", func(e *encoder) {
		e.w.IntMember("index", int64(place))
		e.w.Key("delta")
		e.w.BeginObject()
		e.w.TextMember("type", kind)
		e.w.TextMember(name, value)
		e.w.EndObject()
	})
}

// closeBlock closes the open block, if there is one.
func (s *StreamWriter) closeBlock() {
	if s.open != noBlock {
		s.stop()
	}
}

// stop ends the last block.
func (s *StreamWriter) stop() {
	s.open = noBlock
	_ = s.event("content_block_stop", func(e *encoder) { e.w.IntMember("index", int64(s.next-1)) })
}

// event writes an event with these members.
func (s *StreamWriter) event(name string, members func(*encoder)) error {
	e := newEncoder()
	e.w.BeginObject()
	e.w.TextMember("type", name)
	if members != nil {
		members(e)
	}
	e.w.EndObject()
	return s.send(name, e.w.Bytes())
}

func (s *StreamWriter) send(name string, data []byte) error {
	if s.err == nil {
		frame := make([]byte, 0, len(name)+len(data)+16)
		frame = append(append(append(append(append(frame, "event: "...), name...), "\ndata: "...), data...), "\n\n"...)
		_, s.err = s.w.Write(frame)
	}
	return s.err
}
