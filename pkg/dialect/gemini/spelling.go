package gemini

import (
	"bytes"
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
)

// maxMembers is how deep the format's own members are nested.
const maxMembers = 12

// snakeMember is the name of a member in snake_case. Within a text its quotes would be escaped.
var snakeMember = regexp.MustCompile(`"[a-z]+(?:_[a-z]+)+"\s*:`)

// foreign are the members that hold JSON of others, in which no name is the format's.
var foreign = map[string]bool{
	"args": true, "response": true, "parameters": true, "parametersJsonSchema": true, "responseSchema": true, "responseJsonSchema": true,
}

// camelCase returns a client's document with the format's own members in camelCase. A document that has no other is
// returned as it is, and so is one that is no JSON.
func camelCase(doc []byte) []byte {
	if !snakeMember.Match(doc) || !json.Valid(doc) {
		return doc
	}
	w := jsonwrite.NewWriter(len(doc))
	respell(w, doc, maxMembers)
	return w.Bytes()
}

// respell writes a value that is JSON, with members respelled up to a depth.
func respell(w *jsonwrite.Writer, value json.RawMessage, depth int) {
	var object map[string]json.RawMessage
	var list []json.RawMessage
	switch trimmed := bytes.TrimSpace(value); {
	case depth == 0:
		w.Raw(string(trimmed))
	case trimmed[0] == '{' && json.Unmarshal(trimmed, &object) == nil:
		w.BeginObject()
		for _, name := range slices.Sorted(maps.Keys(object)) {
			spelled := camel(name)
			w.Key(spelled)
			if foreign[spelled] {
				w.Raw(string(object[name]))
			} else {
				respell(w, object[name], depth-1)
			}
		}
		w.EndObject()
	case trimmed[0] == '[' && json.Unmarshal(trimmed, &list) == nil:
		w.BeginList()
		for _, item := range list {
			respell(w, item, depth-1)
		}
		w.EndList()
	default:
		w.Raw(string(trimmed))
	}
}

// camel is a name in camelCase.
func camel(name string) string {
	words := strings.Split(name, "_")
	for i, word := range words[1:] {
		if word != "" {
			words[i+1] = strings.ToUpper(word[:1]) + word[1:]
		}
	}
	return strings.Join(words, "")
}
