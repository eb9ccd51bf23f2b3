// Package orderedjson reads and writes JSON whose objects keep the order of their members and whose numbers keep their digits.
//
// Arguments of tools and their schemas are JSON written by others. Where the platform has to change a part of such a document, the rest
// must come out as it went in: an order of keys that a provider's cache relies on, an integer of thirty digits, a 1.0 that is no 1.
package orderedjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"unicode/utf8"
)

// Object is a JSON object. The zero value is empty and ready to use.
type Object struct {
	names   []string
	members map[string]any
}

// Get returns the member name and whether there is one.
func (o *Object) Get(name string) (value any, ok bool) {
	value, ok = o.members[name]
	return value, ok
}

// Set replaces the member name in its place, or adds it at the end.
func (o *Object) Set(name string, value any) {
	if o.members == nil {
		o.members = map[string]any{}
	}
	if _, known := o.members[name]; !known {
		o.names = append(o.names, name)
	}
	o.members[name] = value
}

// Delete removes the member name, if there is one.
func (o *Object) Delete(name string) {
	if _, known := o.members[name]; known {
		delete(o.members, name)
		o.names = slices.DeleteFunc(o.names, func(n string) bool { return n == name })
	}
}

// Len returns the number of members.
func (o *Object) Len() int { return len(o.names) }

// All yields the members in order.
func (o *Object) All() iter.Seq2[string, any] {
	return func(yield func(string, any) bool) {
		for _, name := range o.names {
			if !yield(name, o.members[name]) {
				return
			}
		}
	}
}

// MarshalJSON writes the object in its order, without blanks.
func (o *Object) MarshalJSON() ([]byte, error) { return Append(nil, o), nil }

// Decode reads one JSON document. Values are nil, bool, json.Number, string, []any and *Object. Of members with one name the last value
// counts, at the place of the first; what is no Unicode in a text becomes U+FFFD. It fails on what encoding/json refuses.
func Decode(document []byte) (any, error) {
	value, _, err := decode(document)
	return value, err
}

// DecodeObject reads one JSON object, and fails on any other value.
func DecodeObject(document []byte) (*Object, error) {
	value, err := Decode(document)
	if err != nil {
		return nil, err
	}
	object, ok := value.(*Object)
	if !ok {
		return nil, fmt.Errorf("%s where an object is wanted", Kind(value))
	}
	return object, nil
}

// Tidy returns document without blanks around it, and else as it is where every reader agrees about what it says. Where a name occurs twice
// or a text holds what is no Unicode, it returns the document as Decode reads it.
func Tidy(document []byte) (json.RawMessage, error) {
	value, exact, err := decode(document)
	if err != nil {
		return nil, err
	}
	if exact {
		return bytes.TrimSpace(document), nil
	}
	return Append(nil, value), nil
}

// Depth returns how deep the arrays and objects of a valid document nest: 0 for a scalar, 1 for `{}`.
func Depth(document []byte) int {
	depth, deepest := 0, 0
	inText := false
	for i := 0; i < len(document); i++ {
		switch c := document[i]; {
		case inText && c == '\\':
			i++
		case c == '"':
			inText = !inText
		case inText:
		case c == '{' || c == '[':
			depth++
			deepest = max(deepest, depth)
		case c == '}' || c == ']':
			depth--
		}
	}
	return deepest
}

// Kind names the type of a value that Decode returned, as JSON Schema does.
func Kind(value any) string {
	switch value.(type) {
	case nil:
		return "null"
	case bool:
		return "boolean"
	case json.Number:
		return "number"
	case string:
		return "string"
	case []any:
		return "array"
	default:
		return "object"
	}
}

// Append writes a value that Decode may return to dst, without blanks. It panics on values of other types.
func Append(dst []byte, value any) []byte {
	switch v := value.(type) {
	case nil:
		return append(dst, "null"...)
	case bool:
		if v {
			return append(dst, "true"...)
		}
		return append(dst, "false"...)
	case json.Number:
		return append(dst, v...)
	case string:
		return appendText(dst, v)
	case []any:
		dst = append(dst, '[')
		for i, item := range v {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = Append(dst, item)
		}
		return append(dst, ']')
	case *Object:
		dst = append(dst, '{')
		for i, name := range v.names {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(appendText(dst, name), ':')
			dst = Append(dst, v.members[name])
		}
		return append(dst, '}')
	default:
		panic(fmt.Sprintf("orderedjson: cannot write a %T", value))
	}
}

// appendText writes text as a JSON string, with no more escapes than JSON asks for.
func appendText(dst []byte, text string) []byte {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(text) // a string always encodes
	return append(dst, bytes.TrimSuffix(buf.Bytes(), []byte("\n"))...)
}

// decode also reports whether the value says exactly what the document says.
func decode(document []byte) (value any, exact bool, err error) {
	// Unmarshal checks the whole document, and how deep it nests, before anything is built.
	var whole json.RawMessage
	if err := json.Unmarshal(document, &whole); err != nil {
		return nil, false, err
	}
	dec := json.NewDecoder(bytes.NewReader(document))
	dec.UseNumber()
	r := reader{dec: dec, exact: true}
	value, err = r.value()
	return value, r.exact, err
}

// reader builds values from the tokens of a valid document.
type reader struct {
	dec   *json.Decoder
	exact bool
}

func (r *reader) value() (any, error) {
	token, err := r.dec.Token()
	if err != nil {
		return nil, err
	}
	switch t := token.(type) {
	case json.Delim:
		if t == '[' {
			return r.array()
		}
		return r.object()
	case string:
		return r.text(t), nil
	default:
		return t, nil
	}
}

func (r *reader) array() (any, error) {
	items := []any{}
	for r.dec.More() {
		item, err := r.value()
		if err != nil {
			return nil, err
		}
		items = append(items, item)
	}
	_, err := r.dec.Token()
	return items, err
}

func (r *reader) object() (any, error) {
	object := &Object{}
	for r.dec.More() {
		token, err := r.dec.Token()
		if err != nil {
			return nil, err
		}
		name, ok := token.(string)
		if !ok {
			return nil, errors.New("an object's member has no name")
		}
		value, err := r.value()
		if err != nil {
			return nil, err
		}
		before := object.Len()
		object.Set(r.text(name), value)
		r.exact = r.exact && object.Len() > before
	}
	_, err := r.dec.Token()
	return object, err
}

// text notes what the decoder may have replaced.
func (r *reader) text(s string) string {
	if strings.ContainsRune(s, utf8.RuneError) {
		r.exact = false
	}
	return s
}
