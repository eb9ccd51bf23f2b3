package openaichat

import (
	"cmp"
	"io"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/openai"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
)

// streamWriter writes an answer as server-sent events, each call with one write:
//
//	chunk (role, then pieces)*, chunk (finish_reason) per choice, [chunk (usage)], [DONE]
type streamWriter struct {
	*dialect.EventWriter
	meta    dialect.ResponseMeta
	form    callForm
	choices map[int32]*dialect.Said
}

// NewStreamWriter implements dialect.Codec.
func (Codec) NewStreamWriter(w io.Writer, meta dialect.ResponseMeta) dialect.StreamWriter {
	meta.ID = cmp.Or(meta.ID, newID())
	return &streamWriter{EventWriter: dialect.NewEventWriter(w), meta: meta, form: formOf(&meta), choices: map[int32]*dialect.Said{}}
}

// Write implements dialect.StreamWriter.
func (s *streamWriter) Write(delta *modelv1.GenerateDelta) error {
	c := s.choice(delta.GetChoice())
	switch piece := delta.GetPiece().(type) {
	case *modelv1.GenerateDelta_Text:
		c.Text.WriteString(piece.Text)
		s.piece(delta.GetChoice(), func(w *jsonwrite.Writer) { w.TextMember("content", piece.Text) })
	case *modelv1.GenerateDelta_Reasoning:
		c.Reasoning.WriteString(piece.Reasoning)
		s.piece(delta.GetChoice(), func(w *jsonwrite.Writer) { w.TextMember(memberReasoningContent, piece.Reasoning) })
	case *modelv1.GenerateDelta_ToolCall:
		if s.form.takes(piece.ToolCall) {
			c.Calls.Add(piece.ToolCall)
			s.piece(delta.GetChoice(), func(w *jsonwrite.Writer) { s.form.writePiece(w, piece.ToolCall) })
		}
	}
	return s.Flush()
}

// Close implements dialect.StreamWriter. An output without choices fails with dialect.ErrNoChoices.
func (s *streamWriter) Close(output *modelv1.ModelOutput) error {
	if len(output.GetChoices()) == 0 {
		return dialect.ErrNoChoices
	}
	for i, choice := range output.GetChoices() {
		s.rest(int32(i), choice)
	}
	if s.meta.IncludeUsage {
		s.chunk(output, func(w *jsonwrite.Writer) {
			w.BeginListMember("choices")
			w.EndList()
			usage := output.GetUsage()
			if usage == nil {
				usage = &modelv1.ModelUsage{}
			}
			w.Key("usage")
			writeUsage(w, usage)
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

// rest writes the missing part of a choice.
func (s *streamWriter) rest(index int32, choice *modelv1.Choice) {
	c, all := s.choice(index), saidBy(choice.GetMessage(), "\n")
	if streamed := saidBy(choice.GetMessage(), ""); streamed.text == c.Text.String() {
		all.sources = streamed.sources
	}
	if rest, more := strings.CutPrefix(all.reasoning, c.Reasoning.String()); more && rest != "" {
		s.piece(index, func(w *jsonwrite.Writer) { w.TextMember(memberReasoningContent, rest) })
	}
	// Providers that do not distinguish the two stream a refusal as text.
	if c.Text.Len() == 0 && all.refusal != "" {
		s.piece(index, func(w *jsonwrite.Writer) { w.TextMember("refusal", all.refusal) })
	}
	if rest, more := strings.CutPrefix(all.text, c.Text.String()); more && rest != "" {
		s.piece(index, func(w *jsonwrite.Writer) { w.TextMember("content", rest) })
	}
	for missing := range c.RestOfCalls(s.form.calls(all.calls)) {
		s.piece(index, func(w *jsonwrite.Writer) { s.form.writePiece(w, missing) })
	}
	s.chunk(nil, func(w *jsonwrite.Writer) {
		w.BeginListMember("choices")
		w.BeginObject()
		w.IntMember("index", int64(index))
		w.BeginObjectMember("delta")
		writeDetails(w, all.parts)
		writeImages(w, all.parts)
		writeSources(w, all.sources)
		w.EndObject()
		writeLogprobs(w, choice.GetLogprobs())
		w.TextMember("finish_reason", finishReason(choice.GetStopReason(), s.form))
		w.EndObject()
		w.EndList()
	})
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

// piece writes a chunk with a piece of a choice.
func (s *streamWriter) piece(index int32, members func(*jsonwrite.Writer)) {
	s.chunk(nil, func(w *jsonwrite.Writer) {
		w.BeginListMember("choices")
		w.BeginObject()
		w.IntMember("index", int64(index))
		w.BeginObjectMember("delta")
		members(w)
		w.EndObject()
		w.Key("finish_reason")
		w.Null()
		w.EndObject()
		w.EndList()
	})
}

// chunk writes an event that is a chunk.
func (s *streamWriter) chunk(output *modelv1.ModelOutput, members func(*jsonwrite.Writer)) {
	s.Event("", func(w *jsonwrite.Writer) {
		openai.WriteHead(w, &s.meta, output, "chat.completion.chunk")
		members(w)
	})
}

func writeCallDelta(w *jsonwrite.Writer, call *modelv1.ToolCallDelta) {
	w.BeginListMember("tool_calls")
	w.BeginObject()
	w.IntMember("index", int64(call.GetIndex()))
	if call.GetId() != "" || call.GetFunction() != "" {
		w.TextMember("id", call.GetId())
		w.TextMember("type", "function")
	}
	w.BeginObjectMember("function")
	w.TextUnlessEmpty("name", call.GetFunction())
	w.TextMember("arguments", call.GetArguments())
	w.EndObject()
	w.EndObject()
	w.EndList()
}
