// Package jsoncase spells the names of members anew, for APIs that take a name in snake_case and in camelCase, as those
// with the JSON form of protocol buffers do.
package jsoncase

import (
	"bytes"
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
)

// snakeMember is the name of a member in snake_case. Within a text its quotes would be escaped.
var snakeMember = regexp.MustCompile(`"[a-z]+(?:_[a-z]+)+"\s*:`)

// Camel returns a document with its members in camelCase, up to a depth, except those within the members foreign, which
// hold JSON of others. A document that has no member in snake_case is returned as it is, and so is one that is no JSON.
func Camel(doc []byte, depth int, foreign map[string]bool) []byte {
	if !snakeMember.Match(doc) || !json.Valid(doc) {
		return doc
	}
	w := jsonwrite.NewWriter(len(doc))
	respell(w, doc, depth, foreign)
	return w.Bytes()
}

// respell writes a value that is JSON, with members respelled up to a depth.
func respell(w *jsonwrite.Writer, value json.RawMessage, depth int, foreign map[string]bool) {
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
				respell(w, object[name], depth-1, foreign)
			}
		}
		w.EndObject()
	case trimmed[0] == '[' && json.Unmarshal(trimmed, &list) == nil:
		w.BeginList()
		for _, item := range list {
			respell(w, item, depth-1, foreign)
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
