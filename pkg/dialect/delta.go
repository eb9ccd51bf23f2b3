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
