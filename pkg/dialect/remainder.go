package dialect

import (
	"iter"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
)

// Said collects what the pieces of a choice say, so that a StreamWriter which closes its answer writes only the rest.
// The zero value is of no pieces.
type Said struct {
	// Text and Reasoning are the pieces' texts.
	Text, Reasoning strings.Builder
	// Sealed means that reasoning came as a whole part, so that none of it is missing.
	Sealed bool
	// Calls are the pieces of calls.
	Calls CallRemainder

	begun bool
	// whole are the parts that came whole and have no pieces: neither texts nor reasoning. texts are the texts that
	// came whole after their pieces.
	whole, texts []*contentv1.Content
}

// PieceWriter writes what the pieces of an answer say, in a format that has one choice. What it writes is sent later.
type PieceWriter interface {
	// WriteBegin writes the beginning of the answer, before all else.
	WriteBegin()
	WriteText(piece string)
	WriteReasoning(piece string)
	WriteCall(piece *modelv1.ToolCallDelta)
	// WritePart writes a part that has ended, with what its pieces did not say: of a text at most its sources, since
	// the end of the answer has all of it.
	WritePart(part *contentv1.Content)
}

// Begin writes the beginning of an answer, once.
func (s *Said) Begin(w PieceWriter) {
	if !s.begun {
		s.begun = true
		w.WriteBegin()
	}
}

// Add adds a piece and writes it. Pieces of other choices than the first are left out.
func (s *Said) Add(d *modelv1.GenerateDelta, w PieceWriter) {
	if d.GetChoice() != 0 {
		return
	}
	s.Begin(w)
	switch piece := d.GetPiece().(type) {
	case *modelv1.GenerateDelta_Text:
		s.Text.WriteString(piece.Text)
		w.WriteText(piece.Text)
	case *modelv1.GenerateDelta_Reasoning:
		s.Reasoning.WriteString(piece.Reasoning)
		w.WriteReasoning(piece.Reasoning)
	case *modelv1.GenerateDelta_ToolCall:
		s.Calls.Add(piece.ToolCall)
		w.WriteCall(piece.ToolCall)
	case *modelv1.GenerateDelta_Part:
		switch {
		case piece.Part.GetText() != nil:
			s.texts = append(s.texts, piece.Part)
		case piece.Part.GetReasoning() == nil:
			s.whole = append(s.whole, piece.Part)
		}
		w.WritePart(piece.Part)
	}
}

// Unsaid is what the pieces did not say of a part.
type Unsaid struct {
	// Text is the missing rest of a text or of readable reasoning.
	Text string
	// Begun means that the pieces have begun it. It is false for parts of other kinds.
	Begun bool
	// Ended means that a text came whole after its pieces, with its sources.
	Ended bool
}

// Rest yields the parts of a whole answer, each with what its pieces did not say, except the parts that came whole.
// readable is what of its reasoning is in pieces.
func (s *Said) Rest(parts []*contentv1.Content, readable func(*contentv1.Content) string) iter.Seq2[*contentv1.Content, Unsaid] {
	return func(yield func(*contentv1.Content, Unsaid) bool) {
		texts, reasoning := Remainder{Said: s.Text.String()}, Remainder{Said: s.Reasoning.String(), All: s.Sealed}
		next := 0 // of the whole parts, which mostly come in the order of the answer
		for _, part := range parts {
			var m Unsaid
			switch plain := part.GetText() != nil || part.GetReasoning() != nil; {
			case plain: // None of the whole parts is.
			case next < len(s.whole) && proto.Equal(s.whole[next], part):
				next++
				continue
			case slices.ContainsFunc(s.whole, func(came *contentv1.Content) bool { return proto.Equal(came, part) }):
				continue
			}
			switch {
			case part.GetText() != nil:
				m.Text, m.Begun = texts.Of(part.GetText().GetText())
				m.Ended = slices.ContainsFunc(s.texts, func(came *contentv1.Content) bool { return proto.Equal(came, part) })
			case part.GetReasoning() != nil:
				m.Text, m.Begun = reasoning.Of(readable(part))
			}
			if !yield(part, m) {
				return
			}
		}
	}
}

// RestOfCalls yields the missing pieces of the calls of a whole answer.
func (s *Said) RestOfCalls(calls []*toolv1.ToolCall) iter.Seq[*modelv1.ToolCallDelta] {
	return func(yield func(*modelv1.ToolCallDelta) bool) {
		for i, call := range calls {
			if piece := s.Calls.Of(int32(i), call); piece != nil && !yield(piece) {
				return
			}
		}
	}
}

// Remainder finds what the pieces of an answer did not contain of its texts, or of its reasoning. It belongs to a
// StreamWriter that closes its answer.
type Remainder struct {
	// Said is the pieces' text of the parts that are not yet visited.
	Said string
	// All means that nothing is missing.
	All bool
}

// Of returns the missing rest of the next part's text, and whether the pieces have begun it. If the pieces differ from
// the text, nothing counts as missing from there on: an answer may be reordered once it is complete.
func (r *Remainder) Of(text string) (missing string, begun bool) {
	if r.All {
		return "", true
	}
	if rest, ok := strings.CutPrefix(text, r.Said); ok {
		begun, r.Said = r.Said != "", ""
		return rest, begun
	}
	rest, ok := strings.CutPrefix(r.Said, text)
	r.Said, r.All = rest, !ok
	return "", true
}

// CallRemainder finds what the pieces of an answer did not contain of its calls: some APIs send no piece of arguments
// that are empty. The zero value is of no pieces.
type CallRemainder struct {
	// begun are the calls of which a piece was written, by index: whether it had arguments.
	begun map[int32]bool
}

// Add takes a piece that was written.
func (r *CallRemainder) Add(piece *modelv1.ToolCallDelta) {
	if r.begun == nil {
		r.begun = map[int32]bool{}
	}
	r.begun[piece.GetIndex()] = r.begun[piece.GetIndex()] || piece.GetArguments() != ""
}

// Of returns the missing piece of the call at an index: all of it, or its arguments; nil if nothing is missing.
func (r *CallRemainder) Of(index int32, call *toolv1.ToolCall) *modelv1.ToolCallDelta {
	switch arguments, begun := r.begun[index]; {
	case arguments:
		return nil
	case begun:
		return &modelv1.ToolCallDelta{Index: index, Arguments: ArgumentsOf(call)}
	default:
		return &modelv1.ToolCallDelta{Index: index, Id: call.GetId(), Function: call.GetFunction(), Arguments: ArgumentsOf(call)}
	}
}
