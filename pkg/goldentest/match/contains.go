package match

import "strings"

// Contains returns a Difference for each of the texts that occurs in no string of got.
func Contains(texts []string, got any) Differences {
	normal, err := normalise(got)
	if err != nil {
		return Differences{{Path: "$", Want: "a JSON value", Got: err.Error()}}
	}
	var found Differences
	for _, text := range texts {
		if !occurs(text, normal) {
			found = append(found, Difference{Path: "$", Want: "somewhere " + show(text), Got: show(normal)})
		}
	}
	return found
}

func occurs(text string, value any) bool {
	switch value := value.(type) {
	case string:
		return strings.Contains(value, text)
	case []any:
		for _, item := range value {
			if occurs(text, item) {
				return true
			}
		}
	case map[string]any:
		for _, member := range value {
			if occurs(text, member) {
				return true
			}
		}
	}
	return false
}
