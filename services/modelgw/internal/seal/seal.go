// Package seal keeps the seals of reasoning with who can read them. A vendor refuses a request with the seal of
// another, and its own are needed byte for byte.
//
// A seal is what a vendor's server alone reads of a model's reasoning: its sealed text, or its signature. Who reads it
// is a sealer, the text `format/who`: the name of the format, and who of those who speak it. A seal of which only the
// format is known has the sealer `format`, which every reader of the format takes. Sealers are in `sealed_by` of
// reasoning, which answers have from the model's ([Mark]), clients' requests from the format and from envelopes
// ([Receive]), and callers' messages from the answers that they were. A seal without a sealer goes to every model.
package seal

import (
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/dialect/openaichat"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
)

// isSealed reports whether a part is reasoning with a seal.
func isSealed(part *contentv1.Content) bool {
	r := part.GetReasoning()
	return r.GetRedacted() || r != nil && r.Signature != nil
}

// formatOf is the format of a sealer.
func formatOf(sealer string) string {
	format, _, _ := strings.Cut(sealer, "/")
	return format
}

// Mark notes in the reasoning of an answer's message who can read its seals. The message is modified.
func Mark(m *modelv1.ChatMessage, sealer string) {
	for _, part := range m.GetContent().GetList().GetParts() {
		if isSealed(part) && part.GetReasoning().GetSealedBy() == "" {
			part.GetReasoning().SealedBy = sealer
		}
	}
}

// MarkDelta is Mark for a piece of an answer, which is not modified.
func MarkDelta(d *modelv1.GenerateDelta, sealer string) *modelv1.GenerateDelta {
	return withPart(d, func(part *contentv1.Content) *contentv1.Content {
		if !isSealed(part) || part.GetReasoning().GetSealedBy() != "" {
			return part
		}
		marked := proto.CloneOf(part)
		marked.GetReasoning().SealedBy = sealer
		return marked
	})
}

// withPart returns a piece with its part exchanged, if it is a part.
func withPart(d *modelv1.GenerateDelta, exchange func(*contentv1.Content) *contentv1.Content) *modelv1.GenerateDelta {
	part := d.GetPart()
	if part == nil {
		return d
	}
	exchanged := exchange(part)
	if exchanged == part {
		return d
	}
	changed := proto.CloneOf(d)
	changed.Piece = &modelv1.GenerateDelta_Part{Part: exchanged}
	return changed
}

// For returns a part of a message as a reader gets it: the part itself, unless it has a seal that the reader cannot
// read. Such reasoning becomes open reasoning with its readable text; nil if it has none.
func For(reader string, part *contentv1.Content) *contentv1.Content {
	if !isSealed(part) {
		return part
	}
	r := part.GetReasoning()
	switch r.GetSealedBy() {
	case "", dialect.AnySealer, reader, formatOf(reader):
		return part
	}
	open := &contentv1.Reasoning{Reasoning: r.GetReasoning(), Summary: r.Summary}
	if r.GetRedacted() || r.GetReasoning() == "" {
		open = &contentv1.Reasoning{Reasoning: r.GetSummary()}
	}
	if open.GetReasoning() == "" {
		return nil
	}
	return &contentv1.Content{Part: &contentv1.Content_Reasoning{Reasoning: open}}
}

// Parts returns the parts of a message as a reader gets them; changed reports whether they differ. The message is not
// modified.
func Parts(reader string, m *modelv1.ChatMessage) (parts []*contentv1.Content, changed bool) {
	for _, part := range m.GetContent().GetList().GetParts() {
		left := For(reader, part)
		changed = changed || left != part
		if left != nil {
			parts = append(parts, left)
		}
	}
	return parts, changed
}

// Receive notes in the messages of a client's request in a format who can read their seals, and takes reasoning out of
// its envelopes. A bare seal is one of the format. Details of chat completions that the gateway wrote itself, and tags
// in a text, do not say whose seal they have. The messages are modified.
func Receive(messages []*modelv1.ChatMessage, format string) {
	for _, m := range messages {
		parts := m.GetContent().GetList().GetParts()
		for i, part := range parts {
			r := part.GetReasoning()
			if !isSealed(part) || r.GetSealedBy() != "" {
				continue
			}
			if whole := dialect.Enveloped(r.GetReasoning(), r.Summary); whole != nil {
				parts[i] = whole
				continue
			}
			if _, bare := openaichat.Details(part); bare || format != openaichat.Name {
				r.SealedBy = format
			}
		}
	}
}

// Stream is an answer to a client of a format, as it arrives: a seal that the format's own servers did not make is in
// an envelope. It is not safe for concurrent use.
type Stream struct {
	// Format is the client's format.
	Format string
	// thought means that reasoning came in pieces, and sealed that some came as a part, with its seal.
	thought, sealed bool
}

// Delta returns a piece of the answer as the client gets it. The piece is not modified.
func (s *Stream) Delta(d *modelv1.GenerateDelta) *modelv1.GenerateDelta {
	s.thought = s.thought || d.GetReasoning() != ""
	s.sealed = s.sealed || d.GetPart().GetReasoning() != nil
	return withPart(d, func(part *contentv1.Content) *contentv1.Content { return enveloped(part, s.Format) })
}

// End returns the whole answer as the client gets it, after its pieces, if it came in pieces. A seal that came after
// its thought, as Gemini's on a text, is apart from the thought: the client has that already. The output is not
// modified.
func (s *Stream) End(output *modelv1.ModelOutput) *modelv1.ModelOutput {
	apart := s.thought && !s.sealed
	return answer(output, func(part *contentv1.Content) []*contentv1.Content {
		left := enveloped(part, s.Format)
		thought := part.GetReasoning().GetSummary()
		if left == part || !apart || !part.GetReasoning().GetRedacted() || thought == "" {
			return []*contentv1.Content{left}
		}
		sealed := proto.CloneOf(part)
		sealed.GetReasoning().Summary = nil
		return []*contentv1.Content{chat.ReasoningPart(thought), enveloped(sealed, s.Format)}
	})
}

// answer returns an output with its parts exchanged: itself if exchange returns them all as they are.
func answer(output *modelv1.ModelOutput, exchange func(*contentv1.Content) []*contentv1.Content) *modelv1.ModelOutput {
	changed := output
	for i, choice := range output.GetChoices() {
		parts, differ := []*contentv1.Content(nil), false
		for _, part := range choice.GetMessage().GetContent().GetList().GetParts() {
			left := exchange(part)
			differ = differ || left[0] != part
			parts = append(parts, left...)
		}
		if !differ {
			continue
		}
		if changed == output {
			changed = proto.CloneOf(output)
		}
		changed.GetChoices()[i].GetMessage().Content = chat.ListContent(parts...)
	}
	return changed
}

// enveloped returns a part with the seal of another format in an envelope, with what is readable beside it; any other
// part itself.
func enveloped(part *contentv1.Content, format string) *contentv1.Content {
	sealer := part.GetReasoning().GetSealedBy()
	if !isSealed(part) || sealer == "" || formatOf(sealer) == format {
		return part
	}
	var readable *string
	if text := dialect.Readable(part); text != "" {
		readable = &text
	}
	return chat.SealedPart(dialect.Seal(part), readable)
}
