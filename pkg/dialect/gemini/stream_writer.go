package gemini

import (
	"cmp"
	"io"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
)

// streamWriter writes an answer as server-sent events:
//
//	answer (a text or a thought)*, answer (the rest and finishReason of each candidate, and usageMetadata)
//
// Calls, which the format has whole, are in the last event: a client takes a candidate with a finish reason to be
// complete. A signature is on the piece after its thought.
type streamWriter struct {
	*dialect.EventWriter
	meta    dialect.ResponseMeta
	written map[int32]*written
}

// written is what was written of a choice.
type written struct {
	dialect.Said
	// seals is how many sealed parts were written, and seal is one that waits for the next piece.
	seals int
	seal  *contentv1.Content
}

// NewStreamWriter implements dialect.Codec.
func (Codec) NewStreamWriter(w io.Writer, meta dialect.ResponseMeta) dialect.StreamWriter {
	meta.ID = cmp.Or(meta.ID, chat.NewID())
	return &streamWriter{EventWriter: dialect.NewEventWriter(w), meta: meta, written: map[int32]*written{}}
}

// Write implements dialect.StreamWriter.
func (s *streamWriter) Write(delta *modelv1.GenerateDelta) error {
	c, part := s.choice(delta.GetChoice()), delta.GetPart()
	text, thought := delta.GetText(), delta.GetReasoning()
	sealed := isSealed(part) && !isAnchor(part)
	c.Text.WriteString(text)
	c.Reasoning.WriteString(thought)
	if c.seal != nil && (thought != "" || sealed) { // It has no piece to be on.
		s.piece(delta.GetChoice(), (*turnWriter).flush)
	}
	switch {
	case sealed:
		c.seal = part
	case thought != "":
		s.piece(delta.GetChoice(), func(t *turnWriter) { t.thought(thought) })
	case text != "":
		s.piece(delta.GetChoice(), func(t *turnWriter) { t.text(text) })
	}
	return s.Flush()
}

// piece writes an answer of one part, with the seal that waits for it. Whether a call will have an anchor is not known
// yet, so that the seal counts as another vendor's.
func (s *streamWriter) piece(choice int32, part func(*turnWriter)) {
	c := s.choice(choice)
	s.event(func(w *jsonwrite.Writer) {
		w.BeginListMember("candidates")
		w.BeginObject()
		writeContent(w, func() { part(&turnWriter{w: w, answer: true, foreign: true, seal: c.seal}) })
		w.IntMember("index", int64(choice))
		w.EndObject()
		w.EndList()
	})
	if c.seal != nil {
		c.seal, c.seals = nil, c.seals+1
	}
}

func (s *streamWriter) choice(index int32) *written {
	c, ok := s.written[index]
	if !ok {
		c = &written{}
		s.written[index] = c
	}
	return c
}

// Close implements dialect.StreamWriter. An output without choices fails with dialect.ErrNoChoices.
func (s *streamWriter) Close(output *modelv1.ModelOutput) error {
	if len(output.GetChoices()) == 0 {
		return cmp.Or(s.Flush(), dialect.ErrNoChoices)
	}
	s.meta.Model = cmp.Or(s.meta.Model, output.GetModel())
	s.event(func(w *jsonwrite.Writer) {
		w.Key("candidates")
		for i, c := range jsonwrite.Objects(w, output.GetChoices()) {
			said := s.choice(int32(i))
			writeCandidate(w, i, c, &missing{
				text: dialect.Remainder{Said: said.Text.String()}, thought: dialect.Remainder{Said: said.Reasoning.String()}, seals: said.seals,
			})
		}
		writeUsage(w, output.GetUsage())
	})
	return s.Flush()
}

// Ping implements dialect.StreamWriter: it writes an answer without candidates, since not all clients of this vendor
// read comments.
func (s *streamWriter) Ping() error {
	s.event(func(*jsonwrite.Writer) {})
	return s.Flush()
}

// Fail implements dialect.StreamWriter.
func (s *streamWriter) Fail(f dialect.Failure) error {
	s.Data("", Codec{}.AppendError(nil, f))
	return s.Flush()
}

// event adds an event with these members.
func (s *streamWriter) event(members func(*jsonwrite.Writer)) {
	s.Event("", func(w *jsonwrite.Writer) {
		members(w)
		writeMeta(w, &s.meta)
	})
}
