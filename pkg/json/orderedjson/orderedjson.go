// Package orderedjson reads and writes JSON whose objects keep the order of their members and whose numbers keep their
// digits.
//
// Arguments of tools and their schemas are foreign JSON. If the platform changes a part of such a document, the rest
// must stay the same: an order of keys that a provider's cache relies on, an integer of thirty digits, a 1.0 that is
// not a 1.
package orderedjson

import (
	"bytes"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"strings"
	"unicode/utf8"
)

// Object is a JSON object. The zero value is empty and ready to use.
type Object struct {
	names  []string
	values []any
	places map[string]int // of the names, if there are more than a few
}

// few is up to how many names are looked through for one.
const few = 8

// place returns the index of the member name, -1 if there is none.
func (o *Object) place(name string) int {
	if o.places == nil {
		return slices.Index(o.names, name)
	}
	if i, known := o.places[name]; known {
		return i
	}
	return -1
}

// index indexes the names from a position on, if there are more than a few.
func (o *Object) index(from int) {
	if len(o.names) <= few {
		o.places = nil
		return
	}
	if o.places == nil {
		o.places, from = make(map[string]int, 2*few), 0
	}
	for i := from; i < len(o.names); i++ {
		o.places[o.names[i]] = i
	}
}

// Get returns the member name and whether there is one.
func (o *Object) Get(name string) (value any, ok bool) {
	if i := o.place(name); i >= 0 {
		return o.values[i], true
	}
	return nil, false
}

// Set replaces the member name in place, or appends it.
func (o *Object) Set(name string, value any) {
	if i := o.place(name); i >= 0 {
		o.values[i] = value
		return
	}
	o.names, o.values = append(o.names, name), append(o.values, value)
	o.index(len(o.names) - 1)
}

// With is Set, and returns the object.
func (o *Object) With(name string, value any) *Object {
	o.Set(name, value)
	return o
}

// Delete removes the member name, if there is one.
func (o *Object) Delete(name string) {
	if i := o.place(name); i >= 0 {
		o.names, o.values = slices.Delete(o.names, i, i+1), slices.Delete(o.values, i, i+1)
		delete(o.places, name)
		o.index(i)
	}
}

// Len returns the number of members.
func (o *Object) Len() int { return len(o.names) }

// All yields the members in order. The member that is yielded may be deleted.
func (o *Object) All() iter.Seq2[string, any] {
	return func(yield func(string, any) bool) {
		for i := 0; i < len(o.names); {
			name := o.names[i]
			if !yield(name, o.values[i]) {
				return
			}
			if i < len(o.names) && o.names[i] == name {
				i++
			}
		}
	}
}

// MarshalJSON writes the object in its order, without blanks.
func (o *Object) MarshalJSON() ([]byte, error) { return Append(nil, o), nil }

// Decode decodes one JSON document. Values are nil, bool, json.Number, string, []any and *Object. Of members with one
// name the last value counts, at the place of the first; invalid Unicode in a text becomes U+FFFD. It fails on input
// that encoding/json refuses.
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

// Tidy returns document without blanks around it, and otherwise unchanged if all readers agree on its content. If a
// name occurs twice or a text contains invalid Unicode, it returns the document as Decode reads it.
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
			dst = Append(dst, v.values[i])
		}
		return append(dst, '}')
	default:
		panic(fmt.Sprintf("orderedjson: cannot write a %T", value))
	}
}

// appendText writes text as a JSON string, with only the escapes that JSON requires.
func appendText(dst []byte, text string) []byte {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(text) // a string always encodes
	return append(dst, bytes.TrimSuffix(buf.Bytes(), []byte("\n"))...)
}

// decode also reports whether the value has exactly the document's content.
func decode(document []byte) (value any, exact bool, err error) {
	// Unmarshal checks the whole document, and how deep it nests, before anything is built.
	var whole json.RawMessage
	if err := json.Unmarshal(document, &whole); err != nil {
		return nil, false, err
	}
	r := reader{rest: document, exact: true}
	return r.value(), r.exact, nil
}

// reader builds values from a valid document.
type reader struct {
	rest  []byte
	exact bool
}

// next returns the first byte that is not a blank.
func (r *reader) next() byte {
	for r.rest[0] == ' ' || r.rest[0] == '\t' || r.rest[0] == '\r' || r.rest[0] == '\n' {
		r.rest = r.rest[1:]
	}
	return r.rest[0]
}

// item consumes the bracket or comma before an item, and reports whether there is an item. If there is none it consumes
// the end.
func (r *reader) item(end byte) bool {
	if r.next() != end {
		r.rest = r.rest[1:]
	}
	if r.next() != end {
		return true
	}
	r.rest = r.rest[1:]
	return false
}

func (r *reader) value() any {
	switch c := r.next(); c {
	case '{':
		return r.object()
	case '[':
		return r.array()
	case '"':
		return r.text()
	default:
		return r.scalar(c)
	}
}

func (r *reader) array() []any {
	items := []any{}
	for r.item(']') {
		items = append(items, r.value())
	}
	return items
}

func (r *reader) object() *Object {
	object := &Object{}
	for r.item('}') {
		r.next()
		name := r.text()
		r.next()
		r.rest = r.rest[1:] // the colon
		before := object.Len()
		object.Set(name, r.value())
		r.exact = r.exact && object.Len() > before
	}
	return object
}

// text reads a text, and records whether the decoder may have replaced something.
func (r *reader) text() string {
	end, plain := 1, true
	for ; r.rest[end] != '"'; end++ {
		if r.rest[end] == '\\' {
			plain = false
			end++ // A quote behind it does not end the text.
		}
	}
	literal := r.rest[:end+1]
	r.rest = r.rest[end+1:]
	var text string
	if plain && utf8.Valid(literal) {
		text = string(literal[1:end])
	} else {
		_ = json.Unmarshal(literal, &text) // It is valid.
	}
	if strings.ContainsRune(text, utf8.RuneError) {
		r.exact = false
	}
	return text
}

// scalar reads a number, true, false or null, which begins with c.
func (r *reader) scalar(c byte) any {
	end := bytes.IndexAny(r.rest, ",]} \t\r\n")
	if end < 0 {
		end = len(r.rest)
	}
	literal := r.rest[:end]
	r.rest = r.rest[end:]
	switch c {
	case 't':
		return true
	case 'f':
		return false
	case 'n':
		return nil
	}
	return json.Number(literal)
}
