package score

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/evalfleet/evalfleet/services/agentorch/internal/pycompat/pytext"
)

// nonFinite is the only key of the object that represents a number which JSON cannot write. No map value may have it as
// its only key.
const nonFinite = "$number"

// MarshalJSON writes the value as JSON. An unscored value is null; other numbers beyond JSON are `{"$number": "NaN"}`,
// `"Infinity"` and `"-Infinity"`. A number that was read from JSON keeps its literal.
func (v Value) MarshalJSON() ([]byte, error) {
	if v.IsUnscored() {
		return []byte("null"), nil
	}
	return v.appendJSON(nil, func(b []byte, name string) []byte {
		b = append(b, `{"`+nonFinite+`":"`...)
		b = append(b, name...)
		return append(b, `"}`...)
	}), nil
}

// AppendLog appends the value as Inspect logs hold it: like JSON, but with the bare constants NaN, Infinity and
// -Infinity.
func (v Value) AppendLog(b []byte) []byte {
	return v.appendJSON(b, func(b []byte, name string) []byte { return append(b, name...) })
}

func (v Value) appendJSON(b []byte, constant func([]byte, string) []byte) []byte {
	switch v.kind {
	case KindNull:
		return append(b, "null"...)
	case KindText:
		return appendString(b, v.text)
	case KindBool:
		return strconv.AppendBool(b, v.number == 1)
	case KindNumber:
		return v.appendNumber(b, constant)
	case KindList:
		b = append(b, '[')
		for i, item := range v.list {
			if i > 0 {
				b = append(b, ',')
			}
			b = item.appendJSON(b, constant)
		}
		return append(b, ']')
	case KindMap:
		b = append(b, '{')
		for i, entry := range v.entries {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(appendString(b, entry.Key), ':')
			b = entry.Value.appendJSON(b, constant)
		}
		return append(b, '}')
	}
	return b
}

func (v Value) appendNumber(b []byte, constant func([]byte, string) []byte) []byte {
	switch {
	case math.IsNaN(v.number):
		return constant(b, "NaN")
	case math.IsInf(v.number, 1):
		return constant(b, "Infinity")
	case math.IsInf(v.number, -1):
		return constant(b, "-Infinity")
	case v.text != "":
		return append(b, v.text...)
	}
	return append(b, pytext.FormatFloat(v.number)...)
}

func appendString(b []byte, s string) []byte {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	// Encoding a string cannot fail.
	_ = enc.Encode(s)
	return append(b, bytes.TrimSuffix(out.Bytes(), []byte("\n"))...)
}

// UnmarshalJSON reads the format of MarshalJSON. Null at the root is unscored. A list or map within a list or map is an
// error.
func (v *Value) UnmarshalJSON(raw []byte) error {
	if string(bytes.TrimSpace(raw)) == "null" {
		*v = Unscored()
		return nil
	}
	value, err := parseValue(raw)
	if err != nil {
		return err
	}
	*v = value
	return nil
}

func parseValue(raw []byte) (Value, error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	token, err := dec.Token()
	if err != nil {
		return Value{}, fmt.Errorf("score value: %w", err)
	}
	switch token {
	case json.Delim('['):
		return parseList(dec)
	case json.Delim('{'):
		return parseMap(dec)
	}
	return scalar(token)
}

func scalar(token json.Token) (Value, error) {
	switch t := token.(type) {
	case nil:
		return Value{}, nil
	case bool:
		return Bool(t), nil
	case string:
		return Text(t), nil
	case json.Number:
		f, err := t.Float64()
		if err != nil && !math.IsInf(f, 0) {
			return Value{}, fmt.Errorf("score value: %w", err)
		}
		return Value{kind: KindNumber, number: f, text: t.String()}, nil
	}
	return Value{}, errors.New("score value: a list or map may hold scalars only")
}

func parseList(dec *json.Decoder) (Value, error) {
	items := []Value{}
	for dec.More() {
		item, err := parseItem(dec)
		if err != nil {
			return Value{}, err
		}
		items = append(items, item)
	}
	return List(items...), nil
}

func parseMap(dec *json.Decoder) (Value, error) {
	entries := []Entry{}
	given := map[string]bool{}
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return Value{}, fmt.Errorf("score value: %w", err)
		}
		item, err := parseItem(dec)
		if err != nil {
			return Value{}, err
		}
		name := key.(string) // the decoder gives only strings as keys
		if given[name] {
			return Value{}, fmt.Errorf("score value: key %q is given twice", name)
		}
		given[name] = true
		entries = append(entries, Entry{Key: name, Value: item})
	}
	if len(entries) == 1 && entries[0].Key == nonFinite {
		return constantNumber(entries[0].Value.text)
	}
	return Map(entries...), nil
}

// parseItem reads a scalar, or the object that represents a number which JSON cannot write.
func parseItem(dec *json.Decoder) (Value, error) {
	token, err := dec.Token()
	if err != nil {
		return Value{}, fmt.Errorf("score value: %w", err)
	}
	if token != json.Delim('{') {
		return scalar(token)
	}
	key, keyErr := dec.Token()
	name, nameErr := dec.Token()
	end, endErr := dec.Token()
	text, isText := name.(string)
	if errors.Join(keyErr, nameErr, endErr) != nil || key != nonFinite || !isText || end != json.Delim('}') {
		return Value{}, errors.New("score value: a list or map may hold scalars only")
	}
	return constantNumber(text)
}

func constantNumber(name string) (Value, error) {
	switch name {
	case "NaN":
		return Unscored(), nil
	case "Infinity":
		return Number(math.Inf(1)), nil
	case "-Infinity":
		return Number(math.Inf(-1)), nil
	}
	return Value{}, fmt.Errorf("score value: %q is none of NaN, Infinity, -Infinity", name)
}
