package jsonwrite

import (
	"encoding/json"
	"maps"
	"slices"
)

// Marshal encodes a value that is known to have a JSON form: without channels, functions, cycles and non-finite
// numbers. It returns nil for any other value.
func Marshal(value any) json.RawMessage {
	b, err := json.Marshal(value)
	if err != nil {
		return nil
	}
	return b
}

// Overlay returns a JSON object with members replaced or added. Its members are in the order of their names, and their
// values stay byte for byte. What is no object counts as one without members.
func Overlay(object json.RawMessage, members map[string]json.RawMessage) json.RawMessage {
	var all map[string]json.RawMessage
	_ = json.Unmarshal(object, &all)
	if all == nil {
		all = map[string]json.RawMessage{}
	}
	maps.Copy(all, members)
	var w Writer
	w.BeginObject()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		w.RawMember(name, string(all[name]))
	}
	w.EndObject()
	return w.Bytes()
}
