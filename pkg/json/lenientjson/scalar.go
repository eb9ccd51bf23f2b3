package lenientjson

import (
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"
)

// read reads a field as a value of one kind; nil if it is absent, null or of another kind, which is a fault.
func read[T any](o *Object, name string, as func(json.RawMessage) (T, bool), must string) *T {
	raw := o.Raw(name)
	if raw == nil {
		return nil
	}
	value, ok := as(raw)
	if !ok {
		o.Fail(name, "%s", must)
		return nil
	}
	return &value
}

// String reads a text; nil when it is absent or null. Nothing but a text is taken as one.
func (o *Object) String(name string) *string { return read(o, name, AsText, "must be a text") }

// Text is String with "" for an absent field.
func (o *Object) Text(name string) string {
	if text := o.String(name); text != nil {
		return *text
	}
	return ""
}

// RequireText is Text of a field that must be there.
func (o *Object) RequireText(name string) string {
	if !o.Require(name) {
		return ""
	}
	return o.Text(name)
}

// Enum reads a text that must be one of allowed; nil when it is absent or null.
func (o *Object) Enum(name string, allowed ...string) *string {
	text := o.String(name)
	if text != nil && !slices.Contains(allowed, *text) {
		o.Fail(name, "must be one of %s", strings.Join(allowed, ", "))
		return nil
	}
	return text
}

// Strings reads a list of texts, and reports whether it is present.
func (o *Object) Strings(name string) (texts []string, ok bool) {
	items, ok := o.List(name)
	for i, item := range items {
		text, isText := AsText(item)
		if !isText {
			o.Fail(name, "item %d must be a text", i)
			return nil, false
		}
		texts = append(texts, text)
	}
	return texts, ok
}

// StringMap reads an object whose values are texts, and reports whether it is present.
func (o *Object) StringMap(name string) (texts map[string]string, ok bool) {
	child := o.Object(name)
	if child == nil {
		return nil, false
	}
	texts = map[string]string{}
	for key := range child.members {
		texts[key] = child.RequireText(key)
	}
	return texts, true
}

// Int64 reads an integer: a number without a fraction, a text that contains one, or a boolean. Nil if it is absent or
// null.
func (o *Object) Int64(name string) *int64 { return read(o, name, AsInt, "must be an integer") }

// Int32 is Int64 within 32 bits.
func (o *Object) Int32(name string) *int32 {
	n := o.Int64(name)
	if n == nil {
		return nil
	}
	if *n < math.MinInt32 || *n > math.MaxInt32 {
		o.Fail(name, "is out of range")
		return nil
	}
	return new(int32(*n))
}

// Float reads a finite number, a text that holds one, or a truth value. Nil when it is absent or null.
func (o *Object) Float(name string) *float64 { return read(o, name, AsFloat, "must be a number") }

// Bool reads a truth value in any of the forms that AsBool knows. Nil when it is absent or null.
func (o *Object) Bool(name string) *bool { return read(o, name, AsBool, "must be true or false") }

// AsBool reads true, false, 0, 1, and the texts true, t, yes, y, on, 1 and their opposites in any case.
func AsBool(raw json.RawMessage) (value, ok bool) {
	word := string(raw)
	if text, isText := AsText(raw); isText {
		word = strings.ToLower(text)
	} else if f, isNumber := number(raw); isNumber {
		word = strconv.FormatFloat(f, 'g', -1, 64)
	}
	switch word {
	case "true", "t", "yes", "y", "on", "1":
		return true, true
	case "false", "f", "no", "n", "off", "0":
		return false, true
	}
	return false, false
}

// AsInt reads an integer as Int64 does.
func AsInt(raw json.RawMessage) (int64, bool) {
	switch string(raw) {
	case "true":
		return 1, true
	case "false":
		return 0, true
	}
	if text, isText := AsText(raw); isText {
		return intOfText(text)
	}
	if n, err := strconv.ParseInt(string(raw), 10, 64); err == nil {
		return n, true
	}
	f, ok := number(raw)
	if !ok || f != math.Trunc(f) || math.Abs(f) >= 1<<63 {
		return 0, false
	}
	return int64(f), true
}

// AsFloat reads a number as Float does.
func AsFloat(raw json.RawMessage) (float64, bool) {
	switch string(raw) {
	case "true":
		return 1, true
	case "false":
		return 0, true
	}
	if text, isText := AsText(raw); isText {
		f, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
		return f, err == nil && !math.IsInf(f, 0) && !math.IsNaN(f)
	}
	return number(raw)
}

// IsInt reports whether raw is written as an integer number, and not as a text or truth value.
func IsInt(raw json.RawMessage) bool {
	_, err := strconv.ParseInt(string(raw), 10, 64)
	return err == nil
}

// AsText reads a text and nothing else.
func AsText(raw json.RawMessage) (text string, ok bool) {
	if len(raw) == 0 || raw[0] != '"' {
		return "", false
	}
	return text, json.Unmarshal(raw, &text) == nil
}

func number(raw json.RawMessage) (float64, bool) {
	var f float64
	if string(raw) == "null" || json.Unmarshal(raw, &f) != nil {
		return 0, false
	}
	return f, true
}

// intOfText reads ` +1_000 ` and `12.0`, but neither exponents nor other bases.
func intOfText(text string) (int64, bool) {
	text = strings.TrimSpace(text)
	if whole, fraction, ok := strings.Cut(text, "."); ok && strings.Trim(fraction, "0") == "" && fraction != "" {
		text = whole
	}
	if strings.HasPrefix(text, "_") || strings.HasSuffix(text, "_") || strings.Contains(text, "__") {
		return 0, false
	}
	n, err := strconv.ParseInt(strings.ReplaceAll(text, "_", ""), 10, 64)
	return n, err == nil
}
