package openaichat

import (
	"bytes"
	"io"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/chat/encode"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
)

// StreamWriter writes an answer as server-sent events:
//
//	chunk (role, then pieces)*, chunk (finish_reason) per choice, [chunk (usage)], [DONE]
//
// Each call of Write is one write of w, so that whoever flushes w sends whole events. It is for one goroutine.
type StreamWriter struct {
	w       io.Writer
	meta    ResponseMeta
	choices map[int32]*streamed
}

// streamed is what of a choice has been written.
type streamed struct {
	text, reasoning strings.Builder
	calls           map[int32]bool // by index
}

// NewStreamWriter returns a writer of one answer.
func NewStreamWriter(w io.Writer, meta ResponseMeta) *StreamWriter {
	return &StreamWriter{w: w, meta: meta, choices: map[int32]*streamed{}}
}

// Write writes a piece of the answer.
func (s *StreamWriter) Write(delta *modelv1.GenerateDelta) error {
	var events bytes.Buffer
	c := s.choice(&events, delta.GetChoice())
	switch piece := delta.GetPiece().(type) {
	case *modelv1.GenerateDelta_Text:
		c.text.WriteString(piece.Text)
		s.piece(&events, delta.GetChoice(), func(w *encode.Writer) { w.TextMember("content", piece.Text) })
	case *modelv1.GenerateDelta_Reasoning:
		c.reasoning.WriteString(piece.Reasoning)
		s.piece(&events, delta.GetChoice(), func(w *encode.Writer) { w.TextMember(memberReasoningContent, piece.Reasoning) })
	case *modelv1.GenerateDelta_ToolCall:
		c.calls[piece.ToolCall.GetIndex()] = true
		s.piece(&events, delta.GetChoice(), func(w *encode.Writer) { writeCallDelta(w, piece.ToolCall) })
	}
	return s.send(&events)
}

func (s *StreamWriter) send(events *bytes.Buffer) error {
	_, err := s.w.Write(events.Bytes())
	return err
}

// Close writes what of the output was not streamed, why each choice ended, and the end.
func (s *StreamWriter) Close(output *modelv1.ModelOutput) error {
	if len(output.GetChoices()) == 0 {
		return ErrNoChoices
	}
	var events bytes.Buffer
	for i, choice := range output.GetChoices() {
		s.rest(&events, int32(i), choice)
	}
	if s.meta.IncludeUsage {
		s.chunk(&events, output, func(w *encode.Writer) {
			w.Key("choices")
			w.BeginList()
			w.EndList()
			usage := output.GetUsage()
			if usage == nil {
				usage = &modelv1.ModelUsage{}
			}
			w.Key("usage")
			writeUsage(w, usage)
		})
	}
	writeEvent(&events, []byte(done))
	return s.send(&events)
}

// Ping writes a comment, which clients pass over, so that a client that waits knows that the answer still comes.
func (s *StreamWriter) Ping() error {
	_, err := io.WriteString(s.w, ": waiting\n\n")
	return err
}

// Fail ends the stream with an error.
func (s *StreamWriter) Fail(f dialect.Failure) error {
	var events bytes.Buffer
	writeEvent(&events, EncodeError(f))
	return s.send(&events)
}

// rest writes what a choice lacks.
func (s *StreamWriter) rest(events *bytes.Buffer, index int32, choice *modelv1.Choice) {
	c, all := s.choice(events, index), saidBy(choice.GetMessage())
	if rest, more := strings.CutPrefix(all.reasoning, c.reasoning.String()); more && rest != "" {
		s.piece(events, index, func(w *encode.Writer) { w.TextMember(memberReasoningContent, rest) })
	}
	// A refusal is streamed as text by whoever does not tell the two apart.
	if c.text.Len() == 0 && all.refusal != "" {
		s.piece(events, index, func(w *encode.Writer) { w.TextMember("refusal", all.refusal) })
	}
	if rest, more := strings.CutPrefix(all.text, c.text.String()); more && rest != "" {
		s.piece(events, index, func(w *encode.Writer) { w.TextMember("content", rest) })
	}
	for i, call := range all.calls {
		if !c.calls[int32(i)] {
			s.piece(events, index, func(w *encode.Writer) {
				writeCallDelta(w, &modelv1.ToolCallDelta{Index: int32(i), Id: call.GetId(), Function: call.GetFunction(), Arguments: argumentsOf(call)})
			})
		}
	}
	s.chunk(events, nil, func(w *encode.Writer) {
		w.Key("choices")
		w.BeginList()
		w.BeginObject()
		w.IntMember("index", int64(index))
		w.Key("delta")
		w.BeginObject()
		writeDetails(w, all.parts)
		w.EndObject()
		writeLogprobs(w, choice.GetLogprobs())
		w.TextMember("finish_reason", finishReason(choice.GetStopReason()))
		w.EndObject()
		w.EndList()
	})
}

// choice returns what of a choice has been written, and opens it where nothing has.
func (s *StreamWriter) choice(events *bytes.Buffer, index int32) *streamed {
	c, open := s.choices[index]
	if !open {
		c = &streamed{calls: map[int32]bool{}}
		s.choices[index] = c
		s.piece(events, index, func(w *encode.Writer) {
			w.TextMember("role", "assistant")
			w.TextMember("content", "")
		})
	}
	return c
}

// piece writes a chunk with a piece of a choice.
func (s *StreamWriter) piece(events *bytes.Buffer, index int32, members func(*encode.Writer)) {
	s.chunk(events, nil, func(w *encode.Writer) {
		w.Key("choices")
		w.BeginList()
		w.BeginObject()
		w.IntMember("index", int64(index))
		w.Key("delta")
		w.BeginObject()
		members(w)
		w.EndObject()
		w.Key("finish_reason")
		w.Null()
		w.EndObject()
		w.EndList()
	})
}

// chunk writes an event that is a chunk.
func (s *StreamWriter) chunk(events *bytes.Buffer, output *modelv1.ModelOutput, members func(*encode.Writer)) {
	var w encode.Writer
	s.meta.begin(&w, output, "chat.completion.chunk")
	members(&w)
	w.EndObject()
	writeEvent(events, w.Bytes())
}

// writeEvent writes one event. Line breaks between the tokens of JSON that others wrote would end it, and mean no more than blanks.
func writeEvent(events *bytes.Buffer, data []byte) {
	events.WriteString("data: ")
	for _, line := range bytes.FieldsFunc(data, func(r rune) bool { return r == '\n' || r == '\r' }) {
		events.Write(line)
	}
	events.WriteString("\n\n")
}

func writeCallDelta(w *encode.Writer, call *modelv1.ToolCallDelta) {
	w.Key("tool_calls")
	w.BeginList()
	w.BeginObject()
	w.IntMember("index", int64(call.GetIndex()))
	if call.GetId() != "" || call.GetFunction() != "" {
		w.TextMember("id", call.GetId())
		w.TextMember("type", "function")
	}
	w.Key("function")
	w.BeginObject()
	w.TextUnlessEmpty("name", call.GetFunction())
	w.TextMember("arguments", call.GetArguments())
	w.EndObject()
	w.EndObject()
	w.EndList()
}
