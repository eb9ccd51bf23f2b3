package dialect

import (
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
)

// TextDelta is a piece of a text.
func TextDelta(text string) *modelv1.GenerateDelta {
	return &modelv1.GenerateDelta{Piece: &modelv1.GenerateDelta_Text{Text: text}}
}

// ReasoningDelta is a piece of reasoning.
func ReasoningDelta(text string) *modelv1.GenerateDelta {
	return &modelv1.GenerateDelta{Piece: &modelv1.GenerateDelta_Reasoning{Reasoning: text}}
}

// CallDelta is a piece of a call.
func CallDelta(piece *modelv1.ToolCallDelta) *modelv1.GenerateDelta {
	return &modelv1.GenerateDelta{Piece: &modelv1.GenerateDelta_ToolCall{ToolCall: piece}}
}

// PartDelta is a part that has ended and that its pieces do not fully contain.
func PartDelta(part *contentv1.Content) *modelv1.GenerateDelta {
	return &modelv1.GenerateDelta{Piece: &modelv1.GenerateDelta_Part{Part: part}}
}

// Pieces collects the pieces of an answer that an event has, for the StreamReader of a format. The zero value has none,
// and is of the first choice.
type Pieces struct {
	// Choice is the index of the choice whose pieces are added.
	Choice int32

	all   []*modelv1.GenerateDelta
	calls int32
}

// Text adds a piece of a text, unless it is empty.
func (p *Pieces) Text(piece string) {
	if piece != "" {
		p.Add(TextDelta(piece))
	}
}

// Reasoning adds a piece of reasoning, unless it is empty.
func (p *Pieces) Reasoning(piece string) {
	if piece != "" {
		p.Add(ReasoningDelta(piece))
	}
}

// Call adds a call that begins, as far as it came, and returns its index among the calls of all choices.
func (p *Pieces) Call(id, function, arguments string) (index int32) {
	index = p.calls
	p.calls++
	p.Add(CallDelta(&modelv1.ToolCallDelta{Index: index, Id: id, Function: function, Arguments: arguments}))
	return index
}

// Arguments adds a piece of the arguments of the call at an index, unless it is empty.
func (p *Pieces) Arguments(index int32, piece string) {
	if piece != "" {
		p.Add(CallDelta(&modelv1.ToolCallDelta{Index: index, Arguments: piece}))
	}
}

// Part adds a part that has ended and that its pieces do not fully contain.
func (p *Pieces) Part(part *contentv1.Content) { p.Add(PartDelta(part)) }

// Add adds a piece.
func (p *Pieces) Add(piece *modelv1.GenerateDelta) {
	piece.Choice = p.Choice
	p.all = append(p.all, piece)
}

// Take returns the pieces that were added since it was last called; nil for none.
func (p *Pieces) Take() []*modelv1.GenerateDelta {
	all := p.all
	p.all = nil
	return all
}
