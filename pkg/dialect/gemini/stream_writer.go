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

// signature returns the signature of the next piece.
func (c *written) signature() string {
	if c.seal == nil {
		return ""
	}
	signature := wrapped(c.seal, true)
	c.seal = nil
	c.seals++
	return signature
}

// NewStreamWriter implements dialect.Codec.
func (Codec) NewStreamWriter(w io.Writer, meta dialect.ResponseMeta) dialect.StreamWriter {
	meta.ID = cmp.Or(meta.ID, chat.NewID())
	return &streamWriter{EventWriter: dialect.NewEventWriter(w), meta: meta, written: map[int32]*written{}}
}

// Write implements dialect.StreamWriter.
func (s *streamWriter) Write(delta *modelv1.GenerateDelta) error {
	c := s.choice(delta.GetChoice())
	text, thought, part := delta.GetText(), delta.GetReasoning() != "", delta.GetPart()
	sealed := isSealed(part) && !isAnchor(part)
	if c.seal != nil && (thought || sealed) { // It has no piece to be on.
		s.piece(delta.GetChoice(), "", false, c.signature())
	}
	if thought {
		text = delta.GetReasoning()
		c.Reasoning.WriteString(text)
	} else {
		c.Text.WriteString(text)
	}
	if sealed {
		c.seal = part
	}
	if text != "" {
		s.piece(delta.GetChoice(), text, thought, c.signature())
	}
	return s.Flush()
}

// piece writes an answer of one text.
func (s *streamWriter) piece(choice int32, text string, thought bool, signature string) {
	s.event(func(w *jsonwrite.Writer) {
		w.BeginListMember("candidates")
		w.BeginObject()
		w.BeginObjectMember("content")
		w.BeginListMember("parts")
		w.BeginObject()
		w.TextMember("text", text)
		if thought {
			w.BoolMember("thought", true)
		}
		w.TextUnlessEmpty("thoughtSignature", signature)
		w.EndObject()
		w.EndList()
		w.TextMember("role", roleModel)
		w.EndObject()
		w.IntMember("index", int64(choice))
		w.EndObject()
		w.EndList()
	})
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
		w.BeginListMember("candidates")
		for i, c := range output.GetChoices() {
			said := s.choice(int32(i))
			writeCandidate(w, i, c, &missing{
				text: dialect.Remainder{Said: said.Text.String()}, thought: dialect.Remainder{Said: said.Reasoning.String()}, seals: said.seals,
			})
		}
		w.EndList()
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
