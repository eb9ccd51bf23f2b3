package mistralchat

import (
	"cmp"
	"io"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/mistral"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
)

// streamWriter writes an answer as server-sent events, each call with one write:
//
//	chunk (role, then pieces)*, chunk (finish_reason, and in the last one usage) per choice, [DONE]
type streamWriter struct {
	w       io.Writer
	err     error
	meta    dialect.ResponseMeta
	choices map[int32]*written
	// events are ready to be sent; data is the last one's data. Both are used again.
	events, data []byte
}

// written is the written part of a choice.
type written struct {
	text, reasoning strings.Builder
	calls           dialect.CallRemainder
}

// NewStreamWriter implements dialect.Codec.
func (Codec) NewStreamWriter(w io.Writer, meta dialect.ResponseMeta) dialect.StreamWriter {
	meta.ID = cmp.Or(meta.ID, newID())
	return &streamWriter{w: w, meta: meta, choices: map[int32]*written{}}
}

// Write implements dialect.StreamWriter.
func (s *streamWriter) Write(delta *modelv1.GenerateDelta) error {
	c := s.choice(delta.GetChoice())
	switch piece := delta.GetPiece().(type) {
	case *modelv1.GenerateDelta_Text:
		c.text.WriteString(piece.Text)
		s.text(delta.GetChoice(), piece.Text)
	case *modelv1.GenerateDelta_Reasoning:
		c.reasoning.WriteString(piece.Reasoning)
		s.reasoning(delta.GetChoice(), piece.Reasoning)
	case *modelv1.GenerateDelta_ToolCall:
		c.calls.Add(piece.ToolCall)
		s.call(delta.GetChoice(), piece.ToolCall)
	}
	return s.send()
}

// send writes the events that are ready.
func (s *streamWriter) send() error {
	if s.err == nil {
		_, s.err = s.w.Write(s.events)
	}
	s.events = s.events[:0]
	return s.err
}

// Close implements dialect.StreamWriter. An output without choices fails with dialect.ErrNoChoices.
func (s *streamWriter) Close(output *modelv1.ModelOutput) error {
	if len(output.GetChoices()) == 0 {
		return cmp.Or(s.err, dialect.ErrNoChoices)
	}
	s.meta.Model = cmp.Or(s.meta.Model, output.GetModel())
	last := len(output.GetChoices()) - 1
	for i, c := range output.GetChoices() {
		s.rest(int32(i), c.GetMessage())
		finish := finishReason(c.GetStopReason())
		s.chunk(int32(i), finish, func(w *jsonwrite.Writer) { w.TextMember("content", "") }, func(w *jsonwrite.Writer) {
			if i == last {
				w.Key("usage")
				mistral.WriteUsage(w, output.GetUsage())
			}
		})
	}
	s.event([]byte(done))
	return s.send()
}

// Ping implements dialect.StreamWriter: it writes a comment, which clients pass over.
func (s *streamWriter) Ping() error {
	s.events = append(s.events, ": waiting\n\n"...)
	return s.send()
}

// Fail implements dialect.StreamWriter.
func (s *streamWriter) Fail(f dialect.Failure) error {
	s.event(Codec{}.AppendError(nil, f))
	return s.send()
}

// rest writes the part of a choice that its pieces did not contain.
func (s *streamWriter) rest(index int32, m *modelv1.ChatMessage) {
	c := s.choice(index)
	texts, reasoning := dialect.Remainder{Said: c.text.String()}, dialect.Remainder{Said: c.reasoning.String()}
	for _, part := range chat.Parts(m.GetContent()) {
		switch p := part.GetPart().(type) {
		case *contentv1.Content_Text:
			if rest, _ := texts.Of(p.Text.GetText()); rest != "" {
				s.text(index, rest)
			}
		case *contentv1.Content_Reasoning:
			if rest, _ := reasoning.Of(mistral.Readable(p.Reasoning)); rest != "" {
				s.reasoning(index, rest)
			}
		case *contentv1.Content_Image:
			s.content(index, func(w *jsonwrite.Writer) { mistral.WriteAnswer(w, part) })
		}
	}
	for i, call := range m.GetToolCalls() {
		if missing := c.calls.Of(int32(i), call); missing != nil {
			s.call(index, missing)
		}
	}
}

// choice returns the written part of a choice, and opens the choice if nothing has been written.
func (s *streamWriter) choice(index int32) *written {
	c, open := s.choices[index]
	if !open {
		c = &written{}
		s.choices[index] = c
		s.piece(index, func(w *jsonwrite.Writer) {
			w.TextMember("role", "assistant")
			w.TextMember("content", "")
		})
	}
	return c
}

func (s *streamWriter) text(index int32, text string) {
	s.piece(index, func(w *jsonwrite.Writer) { w.TextMember("content", text) })
}

func (s *streamWriter) reasoning(index int32, thought string) {
	s.content(index, func(w *jsonwrite.Writer) { mistral.WriteThinking(w, thought) })
}

// content writes a chunk with chunks of content.
func (s *streamWriter) content(index int32, chunks func(*jsonwrite.Writer)) {
	s.piece(index, func(w *jsonwrite.Writer) {
		w.BeginListMember("content")
		chunks(w)
		w.EndList()
	})
}

func (s *streamWriter) call(index int32, piece *modelv1.ToolCallDelta) {
	s.piece(index, func(w *jsonwrite.Writer) {
		w.BeginListMember("tool_calls")
		writeCall(w, int(piece.GetIndex()), piece.GetId(), piece.GetFunction(), piece.GetArguments())
		w.EndList()
	})
}

// piece writes a chunk with a piece of a choice.
func (s *streamWriter) piece(index int32, delta func(*jsonwrite.Writer)) {
	s.chunk(index, "", delta, func(*jsonwrite.Writer) {})
}

// chunk writes an event that is a chunk about a choice, whose finish reason may be empty.
func (s *streamWriter) chunk(index int32, finish string, delta, more func(*jsonwrite.Writer)) {
	w := jsonwrite.Append(s.data[:0], 0)
	begin(w, &s.meta, nil, "chat.completion.chunk")
	w.BeginListMember("choices")
	w.BeginObject()
	w.IntMember("index", int64(index))
	w.BeginObjectMember("delta")
	delta(w)
	w.EndObject()
	w.TextOrNull("finish_reason", finish)
	w.EndObject()
	w.EndList()
	more(w)
	w.EndObject()
	s.data = w.Bytes()
	s.event(s.data)
}

// event formats an event.
func (s *streamWriter) event(data []byte) { s.events = dialect.AppendEvent(s.events, "", data) }
