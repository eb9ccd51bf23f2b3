package mistralchat

import (
	"cmp"
	"io"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/mistral"
	"github.com/evalfleet/evalfleet/pkg/dialect/openai"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
)

// streamWriter writes an answer as server-sent events, each call with one write:
//
//	chunk (role, then pieces)*, chunk (finish_reason, and in the last one usage) per choice, [DONE]
type streamWriter struct {
	*dialect.EventWriter
	meta    dialect.ResponseMeta
	choices map[int32]*dialect.Said
}

// NewStreamWriter implements dialect.Codec.
func (Codec) NewStreamWriter(w io.Writer, meta dialect.ResponseMeta) dialect.StreamWriter {
	meta.ID = cmp.Or(meta.ID, newID())
	return &streamWriter{EventWriter: dialect.NewEventWriter(w), meta: meta, choices: map[int32]*dialect.Said{}}
}

// Write implements dialect.StreamWriter.
func (s *streamWriter) Write(delta *modelv1.GenerateDelta) error {
	c := s.choice(delta.GetChoice())
	switch piece := delta.GetPiece().(type) {
	case *modelv1.GenerateDelta_Text:
		c.Text.WriteString(piece.Text)
		s.text(delta.GetChoice(), piece.Text)
	case *modelv1.GenerateDelta_Reasoning:
		c.Reasoning.WriteString(piece.Reasoning)
		s.reasoning(delta.GetChoice(), piece.Reasoning)
	case *modelv1.GenerateDelta_ToolCall:
		c.Calls.Add(piece.ToolCall)
		s.call(delta.GetChoice(), piece.ToolCall)
	}
	return s.Flush()
}

// Close implements dialect.StreamWriter. An output without choices fails with dialect.ErrNoChoices.
func (s *streamWriter) Close(output *modelv1.ModelOutput) error {
	if len(output.GetChoices()) == 0 {
		return cmp.Or(s.Flush(), dialect.ErrNoChoices)
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
	s.Data("", []byte(done))
	return s.Flush()
}

// Fail implements dialect.StreamWriter.
func (s *streamWriter) Fail(f dialect.Failure) error {
	s.Data("", Codec{}.AppendError(nil, f))
	return s.Flush()
}

// rest writes the part of a choice that its pieces did not contain.
func (s *streamWriter) rest(index int32, m *modelv1.ChatMessage) {
	c := s.choice(index)
	for part, rest := range c.Rest(chat.Parts(m.GetContent()), mistral.Readable) {
		switch {
		case part.GetImage() != nil:
			s.content(index, func(w *jsonwrite.Writer) { mistral.WriteAnswer(w, part) })
		case rest.Text == "":
		case part.GetText() != nil:
			s.text(index, rest.Text)
		default:
			s.reasoning(index, rest.Text)
		}
	}
	for missing := range c.RestOfCalls(m.GetToolCalls()) {
		s.call(index, missing)
	}
}

// choice returns the written part of a choice, and opens the choice if nothing has been written.
func (s *streamWriter) choice(index int32) *dialect.Said {
	c, open := s.choices[index]
	if !open {
		c = &dialect.Said{}
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
	s.Event("", func(w *jsonwrite.Writer) {
		openai.WriteHead(w, &s.meta, nil, "chat.completion.chunk")
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
	})
}
