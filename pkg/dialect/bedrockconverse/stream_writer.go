package bedrockconverse

import (
	"io"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/awsstream"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
)

// streamWriter writes an answer for a client as it arrives, each event with one write:
//
//	messageStart (contentBlockStart? contentBlockDelta* contentBlockStop)* messageStop metadata
type streamWriter struct {
	frames *awsstream.Writer
	// next is the place of the next block; open is the kind of the last one while it is not closed.
	next int
	open blockKind
	// said is what was already written, and calls are the places of calls by index.
	said  dialect.Said
	calls map[int32]int
	// payload is that of an event. It is used again.
	payload jsonwrite.Writer
}

// NewStreamWriter implements dialect.Codec. The format has no place for the id and the model of an answer.
func (Codec) NewStreamWriter(w io.Writer, _ dialect.ResponseMeta) dialect.StreamWriter {
	return &streamWriter{frames: awsstream.NewWriter(w), calls: map[int32]int{}}
}

// eventPing is the type of an event that says nothing. Clients pass over types that they do not know.
const eventPing = "ping"

// Ping implements dialect.StreamWriter.
func (s *streamWriter) Ping() error { return s.event(eventPing, func(*jsonwrite.Writer) {}) }

// Fail implements dialect.StreamWriter.
func (s *streamWriter) Fail(f dialect.Failure) error {
	name := errorTypes.Of(f.Status)
	if streamStatuses[name] == 0 {
		name = typeInternal
		if f.Status < 500 {
			name = typeInvalid
		}
	}
	return s.frames.Send(awsstream.KindException, awsstream.HeaderException, strings.ToLower(name[:1])+name[1:], Codec{}.AppendError(nil, f))
}

// Write implements dialect.StreamWriter. The format knows but one choice.
func (s *streamWriter) Write(d *modelv1.GenerateDelta) error {
	s.said.Add(d, s)
	return s.frames.Err()
}

// Close implements dialect.StreamWriter. An output without choices is an empty answer.
func (s *streamWriter) Close(output *modelv1.ModelOutput) error {
	s.said.Begin(s)
	reason := modelv1.StopReason_STOP_REASON_STOP
	if m := chat.FirstMessage(output); m != nil {
		s.rest(m)
		reason = chat.StopReason(output)
	}
	s.closeBlock()
	_ = s.event(eventStop, func(w *jsonwrite.Writer) { w.TextMember("stopReason", stopWord(reason)) })
	return s.event(eventMetadata, func(w *jsonwrite.Writer) {
		writeUsage(w, output.GetUsage())
		w.RawMember("metrics", metrics)
	})
}

// WriteBegin implements dialect.PieceWriter.
func (s *streamWriter) WriteBegin() {
	_ = s.event(eventStart, func(w *jsonwrite.Writer) { w.TextMember("role", roleAssistant) })
}

// rest writes what the pieces did not contain: everything if there were none.
func (s *streamWriter) rest(m *modelv1.ChatMessage) {
	for part, rest := range s.said.Rest(dialect.AnswerParts(m), said) {
		switch {
		case part.GetText() != nil:
			if !rest.Begun {
				s.closeBlock() // Each text of an answer is a block of its own.
			}
			s.WriteText(rest.Text)
		case part.GetImage() != nil:
			s.writeImage(part.GetImage())
		case part.GetReasoning() != nil:
			_, signature, content := answered(part)
			switch {
			case content != "" && !rest.Begun:
				s.WritePart(part)
			case content == "":
				if !rest.Begun {
					s.closeBlock()
				}
				s.WriteReasoning(rest.Text)
				s.writeSignature(signature)
			}
		}
	}
	for piece := range s.said.RestOfCalls(m.GetToolCalls()) {
		s.WriteCall(piece)
	}
}

// WriteText implements dialect.PieceWriter.
func (s *streamWriter) WriteText(text string) {
	if text != "" {
		s.begin(textBlock, nil)
		s.delta(s.next-1, func(w *jsonwrite.Writer) { w.TextMember("text", text) })
	}
}

// WriteReasoning implements dialect.PieceWriter.
func (s *streamWriter) WriteReasoning(text string) {
	if text != "" {
		s.begin(reasoningBlock, nil)
		s.reasoningDelta("text", text)
	}
}

// writeSignature ends reasoning that has a signature.
func (s *streamWriter) writeSignature(signature string) {
	if signature != "" {
		s.begin(reasoningBlock, nil)
		s.reasoningDelta("signature", signature)
		s.closeBlock()
	}
}

func (s *streamWriter) reasoningDelta(name, value string) {
	s.delta(s.next-1, func(w *jsonwrite.Writer) {
		w.TextObjectMember("reasoningContent", name, value)
	})
}

// WritePart implements dialect.PieceWriter: it writes an image, or sealed reasoning. What its pieces had to read has
// come before it.
func (s *streamWriter) WritePart(part *contentv1.Content) {
	if image := part.GetImage(); image != nil {
		s.writeImage(image)
	}
	if part.GetReasoning() == nil {
		return
	}
	s.said.Sealed = true
	said, signature, content := answered(part)
	if content != "" {
		s.begin(redactedBlock, nil)
		s.reasoningDelta("redactedContent", content)
		s.closeBlock()
		return
	}
	if s.open != reasoningBlock {
		s.WriteReasoning(said)
	}
	s.writeSignature(signature)
}

// writeImage writes an image, unless the format does not have it.
func (s *streamWriter) writeImage(image *contentv1.Image) {
	format, data, ok := inline(image)
	if !ok {
		return
	}
	s.begin(imageBlock, func(w *jsonwrite.Writer) {
		w.TextObjectMember("image", "format", format)
	})
	s.delta(s.next-1, func(w *jsonwrite.Writer) {
		w.BeginObjectMember("image")
		writeSource(w, data)
		w.EndObject()
	})
	s.closeBlock()
}

// WriteCall implements dialect.PieceWriter. Pieces of a call whose block is closed bear its place all the same.
func (s *streamWriter) WriteCall(piece *modelv1.ToolCallDelta) {
	place, sent := s.calls[piece.GetIndex()]
	if !sent {
		place = s.next
		s.calls[piece.GetIndex()] = place
		s.begin(callBlock, func(w *jsonwrite.Writer) {
			w.TextObjectMember("toolUse", "toolUseId", piece.GetId(), "name", piece.GetFunction())
		})
	}
	if piece.GetArguments() != "" {
		s.delta(place, func(w *jsonwrite.Writer) {
			w.TextObjectMember("toolUse", "input", piece.GetArguments())
		})
	}
}

// begin begins a block, unless one of its kind is open. start writes what the event for it says; nil if it has none, as
// all but calls and images.
func (s *streamWriter) begin(kind blockKind, start func(*jsonwrite.Writer)) {
	if s.open == kind && start == nil {
		return
	}
	s.closeBlock()
	place := s.next
	s.next, s.open = s.next+1, kind
	if start == nil {
		return
	}
	_ = s.event(eventBlockStart, func(w *jsonwrite.Writer) {
		w.BeginObjectMember("start")
		start(w)
		w.EndObject()
		w.IntMember("contentBlockIndex", int64(place))
	})
}

func (s *streamWriter) delta(place int, member func(*jsonwrite.Writer)) {
	_ = s.event(eventBlockDelta, func(w *jsonwrite.Writer) {
		w.BeginObjectMember("delta")
		member(w)
		w.EndObject()
		w.IntMember("contentBlockIndex", int64(place))
	})
}

// closeBlock closes the open block, if there is one.
func (s *streamWriter) closeBlock() {
	if s.open != emptyBlock {
		s.open = emptyBlock
		_ = s.event(eventBlockStop, func(w *jsonwrite.Writer) { w.IntMember("contentBlockIndex", int64(s.next-1)) })
	}
}

// event writes an event with these members.
func (s *streamWriter) event(name string, members func(*jsonwrite.Writer)) error {
	s.payload.Reset()
	s.payload.BeginObject()
	members(&s.payload)
	s.payload.EndObject()
	return s.frames.Send(awsstream.KindEvent, awsstream.HeaderEvent, name, s.payload.Bytes())
}
