package tool

import (
	"encoding/json"
	"slices"

	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	"github.com/evalfleet/evalfleet/pkg/orderedjson"
)

// Text makes the result that is one text.
func Text(text string) *Result {
	return &Result{Content: textContent(text)}
}

// Parts makes the result that is a list of parts. Reasoning is left out: providers take none in the result of a tool.
func Parts(parts ...*contentv1.Content) *Result {
	parts = slices.DeleteFunc(slices.Clone(parts), func(part *contentv1.Content) bool { return part.GetReasoning() != nil })
	return &Result{Content: &contentv1.MessageContent{Form: &contentv1.MessageContent_List{List: &contentv1.ContentList{Parts: parts}}}}
}

// JSON makes the result of any JSON value: a text as it is, anything else as its JSON. It fails on what is no JSON.
func JSON(document json.RawMessage) (*Result, error) {
	value, err := orderedjson.Decode(document)
	if err != nil {
		return nil, err
	}
	if text, ok := value.(string); ok {
		return Text(text), nil
	}
	return Text(string(orderedjson.Append(nil, value))), nil
}

func textContent(text string) *contentv1.MessageContent {
	return &contentv1.MessageContent{Form: &contentv1.MessageContent_Text{Text: text}}
}
