// Package jsonread is json.Unmarshal for long documents: it reads the bytes once, whereas encoding/json validates the
// whole document before it begins and scans each text twice again. Long prompts are read ten times as fast.
//
// It handles the common cases and delegates the rest to encoding/json: a document that is faulty, that does not fit,
// that names a member twice or in other letters than the field's, or a type that it does not know. So values and errors
// are always those of encoding/json.
package jsonread

import (
	"bytes"
	"encoding"
	"encoding/json"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// TextTaker is a json.Unmarshaler for values that are often texts. It receives a text decoded; it receives all other
// values by UnmarshalJSON, which encoding/json uses for all. Both must mean the same.
type TextTaker interface {
	json.Unmarshaler
	TakeText(text string)
}

// maxDepth bounds the nesting of values here. encoding/json allows more, and has a bound too.
const maxDepth = 512

// Unmarshal is json.Unmarshal into a value that is zero.
func Unmarshal(doc []byte, into any) error {
	pointer := reflect.ValueOf(into)
	if pointer.Kind() != reflect.Pointer || pointer.IsNil() {
		return json.Unmarshal(doc, into)
	}
	v := pointer.Elem()
	r := readers.Get().(*reader)
	defer r.release()
	r.doc, r.at, r.depth = doc, 0, 0
	if decoderOf(v.Type())(r, v) && r.ends() {
		return nil
	}
	v.SetZero()
	return json.Unmarshal(doc, into)
}

// decoder reads the next value into v, which is zero. It fails where encoding/json should try.
type decoder func(r *reader, v reflect.Value) bool

// decoders caches the decoders of types.
var decoders sync.Map // of reflect.Type to decoder

func decoderOf(t reflect.Type) decoder {
	if known, ok := decoders.Load(t); ok {
		return known.(decoder)
	}
	// A type may hold itself, by way of a pointer or a list: it is then looked up when a value is read.
	var made decoder
	var once sync.Once
	known, _ := decoders.LoadOrStore(t, decoder(func(r *reader, v reflect.Value) bool {
		once.Do(func() { made = newDecoder(t) })
		return made(r, v)
	}))
	return known.(decoder)
}

var (
	partType        = reflect.TypeFor[Raw]()
	mixedType       = reflect.TypeFor[TextOrRaw]()
	rawType         = reflect.TypeFor[json.RawMessage]()
	takerType       = reflect.TypeFor[TextTaker]()
	unmarshalerType = reflect.TypeFor[json.Unmarshaler]()
	numberType      = reflect.TypeFor[json.Number]()
	textType        = reflect.TypeFor[encoding.TextUnmarshaler]()
)

func newDecoder(t reflect.Type) decoder {
	switch pointer := reflect.PointerTo(t); {
	case t == partType:
		return readPart
	case t == mixedType:
		return readMixed
	case t == rawType:
		return readRaw
	case pointer.Implements(takerType):
		return readTaker
	case pointer.Implements(unmarshalerType):
		return readUnmarshaler
	case pointer.Implements(textType), t == numberType:
		return decline
	}
	switch t.Kind() {
	case reflect.String:
		return readString
	case reflect.Bool:
		return readBool
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return readInt
	case reflect.Float32, reflect.Float64:
		return readFloat
	case reflect.Pointer:
		return pointerDecoder(t)
	case reflect.Slice:
		return listDecoder(t)
	case reflect.Map:
		return mapDecoder(t)
	case reflect.Struct:
		return structDecoder(t)
	default:
		return decline
	}
}

// decline leaves a value to encoding/json.
func decline(*reader, reflect.Value) bool { return false }

func readPart(r *reader, v reflect.Value) bool {
	raw, ok := r.raw()
	v.SetBytes(slices.Clip(raw))
	return ok
}

func readRaw(r *reader, v reflect.Value) bool {
	raw, ok := r.raw()
	v.SetBytes(bytes.Clone(raw))
	return ok
}

func readMixed(r *reader, v reflect.Value) bool {
	value := v.Addr().Interface().(*TextOrRaw)
	if r.next() != '"' {
		raw, ok := r.raw()
		value.Raw = slices.Clip(raw)
		return ok
	}
	text, ok := r.text()
	value.TakeText(text)
	return ok
}

func readTaker(r *reader, v reflect.Value) bool {
	if r.next() != '"' {
		return readUnmarshaler(r, v)
	}
	text, ok := r.text()
	if ok {
		v.Addr().Interface().(TextTaker).TakeText(text)
	}
	return ok
}

func readUnmarshaler(r *reader, v reflect.Value) bool {
	raw, ok := r.raw()
	return ok && v.Addr().Interface().(json.Unmarshaler).UnmarshalJSON(raw) == nil
}

func readString(r *reader, v reflect.Value) bool {
	if r.next() != '"' {
		return r.null()
	}
	text, ok := r.text()
	if ok {
		v.SetString(text)
	}
	return ok
}

func readBool(r *reader, v reflect.Value) bool {
	switch r.next() {
	case 't':
		v.SetBool(true)
		return r.word("true")
	case 'f':
		return r.word("false")
	default:
		return r.null()
	}
}

func readInt(r *reader, v reflect.Value) bool {
	if r.next() == 'n' {
		return r.null()
	}
	number, ok := r.number()
	if !ok {
		return false
	}
	n, err := strconv.ParseInt(string(number), 10, v.Type().Bits())
	v.SetInt(n)
	return err == nil
}

func readFloat(r *reader, v reflect.Value) bool {
	if r.next() == 'n' {
		return r.null()
	}
	number, ok := r.number()
	if !ok {
		return false
	}
	f, err := strconv.ParseFloat(string(number), v.Type().Bits())
	v.SetFloat(f)
	return err == nil
}

func pointerDecoder(t reflect.Type) decoder {
	elem := decoderOf(t.Elem())
	return func(r *reader, v reflect.Value) bool {
		if r.next() == 'n' {
			return r.null()
		}
		v.Set(reflect.New(t.Elem()))
		return elem(r, v.Elem())
	}
}

func listDecoder(t reflect.Type) decoder {
	if t.Elem().Kind() == reflect.Uint8 {
		return decline // It is base64.
	}
	elem := decoderOf(t.Elem())
	return func(r *reader, v reflect.Value) bool {
		if r.next() == 'n' {
			return r.null()
		}
		v.Set(reflect.MakeSlice(t, 0, 0))
		return r.list(func() bool {
			n := v.Len()
			if n == v.Cap() {
				v.Grow(max(4, n))
			}
			v.SetLen(n + 1)
			return elem(r, v.Index(n))
		})
	}
}

func mapDecoder(t reflect.Type) decoder {
	if t.Key() != reflect.TypeFor[string]() {
		return decline
	}
	elem := decoderOf(t.Elem())
	return func(r *reader, v reflect.Value) bool {
		if r.next() == 'n' {
			return r.null()
		}
		v.Set(reflect.MakeMap(t))
		return r.object(func(name []byte) bool {
			key, value := reflect.ValueOf(string(name)), reflect.New(t.Elem()).Elem()
			if !elem(r, value) {
				return false
			}
			v.SetMapIndex(key, value)
			return true
		})
	}
}

// field is a field of a struct.
type field struct {
	name  string
	index int
	read  decoder
}

// maxFields is how many fields a struct may have, so that a bit for each fits into a word.
const maxFields = 64

func structDecoder(t reflect.Type) decoder {
	fields, ok := fieldsOf(t)
	if !ok || len(fields) > maxFields {
		return decline
	}
	byName := make(map[string]int, len(fields))
	for i, f := range fields {
		byName[f.name] = i
	}
	return func(r *reader, v reflect.Value) bool {
		if r.next() == 'n' {
			return r.null()
		}
		var seen uint64
		return r.object(func(name []byte) bool {
			i, known := byName[string(name)]
			if !known {
				// encoding/json takes a name in other letters too.
				return !slices.ContainsFunc(fields, func(f field) bool { return strings.EqualFold(f.name, string(name)) }) && r.skip()
			}
			if seen&(1<<i) != 0 {
				return false // encoding/json reads the second value into the first.
			}
			seen |= 1 << i
			return fields[i].read(r, v.Field(fields[i].index))
		})
	}
}

// fieldsOf returns the fields of a struct that are members; ok is false if that cannot be determined from their tags
// alone.
func fieldsOf(t reflect.Type) (fields []field, ok bool) {
	for i := range t.NumField() {
		f := t.Field(i)
		tag := f.Tag.Get("json")
		name, options, _ := strings.Cut(tag, ",")
		switch {
		case f.Anonymous, strings.Contains(options, "string"):
			return nil, false
		case !f.IsExported(), tag == "-":
			continue
		case name == "":
			name = f.Name
		}
		if slices.ContainsFunc(fields, func(other field) bool { return strings.EqualFold(other.name, name) }) {
			return nil, false
		}
		fields = append(fields, field{name: name, index: i, read: decoderOf(f.Type)})
	}
	return fields, true
}
