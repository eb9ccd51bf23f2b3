// Package template fills the placeholders of prompts and programs: `{name}` or `{metadata.key}`. A placeholder that is not known stays as it is written, so that
// braces of other meanings do no harm, and what is put in is not read again.
package template

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
)

// Values finds the value of a placeholder by its name.
type Values func(name string) (string, bool)

var (
	placeholder = regexp.MustCompile(`\{[A-Za-z_][A-Za-z0-9_.-]*\}`)
	withEscapes = regexp.MustCompile(`\{\{|\}\}|` + placeholder.String())
)

// Prompt fills a prompt. `{{` and `}}` are single braces.
func Prompt(text string, values Values) string {
	return withEscapes.ReplaceAllStringFunc(text, func(found string) string {
		switch found {
		case "{{":
			return "{"
		case "}}":
			return "}"
		}
		return fill(found, values)
	})
}

// Program fills the text of a program, in which double braces mean what they mean.
func Program(text string, values Values) string {
	return placeholder.ReplaceAllStringFunc(text, func(found string) string { return fill(found, values) })
}

func fill(found string, values Values) string {
	if value, ok := values(found[1 : len(found)-1]); ok {
		return value
	}
	return found
}

// Missing returns the placeholders of a text that begin with a prefix and for which there is no value, each once, in order.
func Missing(text, prefix string, values Values) []string {
	var missing []string
	for _, found := range placeholder.FindAllString(text, -1) {
		name := found[1 : len(found)-1]
		if _, ok := values(name); !ok && strings.HasPrefix(name, prefix) && !slices.Contains(missing, name) {
			missing = append(missing, name)
		}
	}
	return missing
}

// First asks several values in turn.
func First(all ...Values) Values {
	return func(name string) (string, bool) {
		for _, values := range all {
			if value, ok := values(name); ok {
				return value, true
			}
		}
		return "", false
	}
}

// Under gives values a name in front: Under("metadata", v) answers `metadata.key` with what v has for `key`.
func Under(prefix string, values Values) Values {
	return func(name string) (string, bool) {
		rest, ok := strings.CutPrefix(name, prefix+".")
		if !ok {
			return "", false
		}
		return values(rest)
	}
}

// Map gives texts by name.
func Map(texts map[string]string) Values {
	return func(name string) (string, bool) {
		value, ok := texts[name]
		return value, ok
	}
}

// Object gives the members of a JSON object: texts as they are, other values as JSON. `a.b` is the member b of the member a, where there is no member `a.b`.
func Object(document string) Values {
	return func(name string) (string, bool) { return member(document, name) }
}

func member(document, name string) (string, bool) {
	var members map[string]json.RawMessage
	if document == "" || json.Unmarshal([]byte(document), &members) != nil {
		return "", false
	}
	if value, ok := members[name]; ok {
		return Text(string(value)), true
	}
	outer, inner, nested := strings.Cut(name, ".")
	if value, ok := members[outer]; nested && ok {
		return member(string(value), inner)
	}
	return "", false
}

// Text is how a JSON value stands in a text: a string as it is, all else as JSON.
func Text(valueJSON string) string {
	var text string
	if json.Unmarshal([]byte(valueJSON), &text) == nil && valueJSON != "null" {
		return text
	}
	return valueJSON
}
