package tool

import (
	"slices"

	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
)

// Text returns the result that is one text.
func Text(text string) *Result {
	return &Result{Content: textContent(text)}
}

// Parts returns the result that is a list of parts. Reasoning is left out: providers accept none in the result of a
// tool.
func Parts(parts ...*contentv1.Content) *Result {
	parts = slices.DeleteFunc(slices.Clone(parts), func(part *contentv1.Content) bool { return part.GetReasoning() != nil })
	return &Result{Content: &contentv1.MessageContent{Form: &contentv1.MessageContent_List{List: &contentv1.ContentList{Parts: parts}}}}
}

func textContent(text string) *contentv1.MessageContent {
	return &contentv1.MessageContent{Form: &contentv1.MessageContent_Text{Text: text}}
}
