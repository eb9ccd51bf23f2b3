package goldentest

import (
	"encoding/json"
)

func floatOf(value any) (float64, bool) {
	number, ok := value.(json.Number)
	if !ok {
		return 0, false
	}
	float, err := number.Float64()
	return float, err == nil
}

func textsOf(value any) []string {
	list, _ := value.([]any)
	var texts []string
	for _, item := range list {
		if text, ok := item.(string); ok {
			texts = append(texts, text)
		}
	}
	return texts
}
