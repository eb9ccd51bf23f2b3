package rest

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/evalfleet/evalfleet/pkg/enum"
)

// enumValue returns the name of an enum value that a caller wrote with or without the enum's prefix, in any case:
// `full` and `RUN_VIEW_FULL` are the same. It returns "" if there is no such value.
func enumValue(d protoreflect.EnumDescriptor, written string) string {
	if v := enum.Find(d, written); v != nil {
		return string(v.Name())
	}
	return ""
}

// unknownValue returns the message for an unknown value: it lists the enum's values, in the short form.
func unknownValue(d protoreflect.EnumDescriptor, written string) string {
	return fmt.Sprintf("unknown value %q; known: %s", written, strings.Join(enum.Words(d), ", "))
}

// Descriptions of the expected kinds of values, for error messages.
const (
	wantDuration  = "want seconds with an s behind them, such as 600s or 1.5s"
	wantTimestamp = "want a time as in RFC 3339, such as 2030-01-02T03:04:05Z"
	wantNumber    = "want a number"
	wantInteger   = "want a whole number"
	wantDecimal   = "want a whole number in decimal, which does not begin with 0: octal 0644 is 420"
	wantFlag      = "want true or false"
	wantText      = "want a text in quotes"
	wantBytes     = "want base64"
	wantMask      = "want the names of fields in one text, with commas between them, such as \"name,spec.tags\""
)

// duration reports whether a text is a duration in JSON's form.
func duration(text string) bool {
	seconds, ok := strings.CutSuffix(text, "s")
	_, err := strconv.ParseFloat(seconds, 64)
	return ok && err == nil
}

// misfits says what is wanted of a JSON value of a field without further fields; empty where it fits. It judges the
// form, not the range.
func misfits(value any, f protoreflect.FieldDescriptor) string {
	text, isText := value.(string)
	number, isNumber := value.(float64)
	switch f.Kind() {
	case protoreflect.BoolKind:
		if _, ok := value.(bool); !ok {
			return wantFlag
		}
	case protoreflect.StringKind:
		if !isText {
			return wantText
		}
	case protoreflect.BytesKind:
		if !isText || !isBase64(text) {
			return wantBytes
		}
	case protoreflect.EnumKind:
		if isText && enumValue(f.Enum(), text) == "" || !isText && (!isNumber || !whole(number, 32, true)) {
			return unknownValue(f.Enum(), fmt.Sprint(value))
		}
	case protoreflect.FloatKind, protoreflect.DoubleKind:
		if _, err := strconv.ParseFloat(text, 64); !isNumber && err != nil {
			return wantNumber
		}
	case protoreflect.MessageKind, protoreflect.GroupKind:
		switch f.Message().FullName() {
		case "google.protobuf.Duration":
			if !isText || !duration(text) {
				return wantDuration
			}
		case "google.protobuf.Timestamp":
			if _, err := time.Parse(time.RFC3339Nano, text); err != nil {
				return wantTimestamp
			}
		case "google.protobuf.FieldMask":
			if !isText || !mask.MatchString(text) {
				return wantMask
			}
		}
	default: // The whole numbers.
		if isText {
			if octal.MatchString(text) {
				return wantDecimal
			}
			n, err := strconv.ParseFloat(text, 64)
			number, isNumber = n, err == nil
		}
		if !isNumber || number != math.Trunc(number) {
			return wantInteger
		}
		bits, signed := widthOf(f.Kind())
		if !whole(number, bits, signed) {
			return fmt.Sprintf("is out of range; want a whole number of %d bits", bits)
		}
	}
	return ""
}

// octal matches a number that begins with a 0, as octal numbers do.
var octal = regexp.MustCompile(`^[+-]?0[0-9]`)

// mask is the names of fields as JSON writes a mask: none, or several with commas between them.
var mask = regexp.MustCompile(`^([a-zA-Z][a-zA-Z0-9.]*(,[a-zA-Z][a-zA-Z0-9.]*)*)?$`)

// isBase64 reports whether a text is base64 as JSON takes it: of either alphabet, padded or not.
func isBase64(text string) bool {
	encoding := base64.RawStdEncoding
	if strings.ContainsAny(text, "-_") {
		encoding = base64.RawURLEncoding
	}
	if len(text)%4 == 0 {
		text = strings.TrimRight(text, "=")
	}
	_, err := encoding.DecodeString(text)
	return err == nil
}

// widthOf is how many bits the numbers of a kind have, and whether they have a sign.
func widthOf(kind protoreflect.Kind) (bits int, signed bool) {
	switch kind {
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind:
		return 32, true
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		return 32, false
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return 64, false
	default:
		return 64, true
	}
}

// whole reports whether a number is a whole one of so many bits.
func whole(number float64, bits int, signed bool) bool {
	if number != math.Trunc(number) {
		return false
	}
	if signed {
		return number >= -math.Ldexp(1, bits-1) && number < math.Ldexp(1, bits-1)
	}
	return number >= 0 && number < math.Ldexp(1, bits)
}

// fullEnums returns a body with the full names of its enums' values, and whether that is another body than it was.
// Numbers keep their digits. What is no JSON stays as it is, to be refused.
func fullEnums(text []byte, d protoreflect.MessageDescriptor) ([]byte, bool) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var value any
	if !utf8.Valid(text) || decoder.Decode(&value) != nil || decoder.Decode(new(any)) != io.EOF || !lengthen(value, d) {
		return nil, false
	}
	if twice(json.NewDecoder(bytes.NewReader(text)), "") != "" {
		return nil, false
	}
	full, err := json.Marshal(value)
	return full, err == nil
}

// twice returns the path of the first key that occurs twice in one object of a JSON value; empty if none does.
func twice(decoder *json.Decoder, path string) string {
	switch token, _ := decoder.Token(); token {
	case json.Delim('{'):
		seen := map[string]bool{}
		for decoder.More() {
			key, _ := decoder.Token()
			name, _ := key.(string)
			at := strings.TrimPrefix(below(path, "."+name), ".")
			if seen[name] {
				return at
			}
			seen[name] = true
			if found := twice(decoder, at); found != "" {
				return found
			}
		}
		_, _ = decoder.Token()
	case json.Delim('['):
		for i := 0; decoder.More(); i++ {
			if found := twice(decoder, below(path, fmt.Sprintf("[%d]", i))); found != "" {
				return found
			}
		}
		_, _ = decoder.Token()
	}
	return ""
}

// lengthen puts full names of enums' values into a JSON value of d, and reports whether there were shorter ones.
func lengthen(value any, d protoreflect.MessageDescriptor) bool {
	object, _ := value.(map[string]any)
	changed := false
	for key, member := range object {
		f := field(d, key)
		if f == nil {
			continue
		}
		of, set := f, func(v any) { object[key] = v }
		switch elements := member.(type) {
		case []any:
			for i, element := range elements {
				changed = lengthenOne(element, of, func(v any) { elements[i] = v }) || changed
			}
		case map[string]any:
			if !f.IsMap() {
				changed = lengthenOne(member, of, set) || changed
				continue
			}
			for name, entry := range elements {
				changed = lengthenOne(entry, f.MapValue(), func(v any) { elements[name] = v }) || changed
			}
		default:
			changed = lengthenOne(member, of, set) || changed
		}
	}
	return changed
}

func lengthenOne(value any, f protoreflect.FieldDescriptor, set func(any)) bool {
	if f.Message() != nil {
		return lengthen(value, f.Message())
	}
	text, isText := value.(string)
	if f.Enum() == nil || !isText {
		return false
	}
	full := enumValue(f.Enum(), text)
	if full == "" || full == text {
		return false
	}
	set(full)
	return true
}

// ofQuery returns the value of a query parameter in the mapping's form, or else a description of the expected value.
func ofQuery(value string, f protoreflect.FieldDescriptor) (string, string) {
	if f.IsMap() {
		return value, ""
	}
	switch f.Kind() {
	case protoreflect.EnumKind:
		if _, err := strconv.Atoi(value); err == nil {
			return value, ""
		}
		if full := enumValue(f.Enum(), value); full != "" {
			return full, ""
		}
		return "", unknownValue(f.Enum(), value)
	case protoreflect.BoolKind:
		if _, err := strconv.ParseBool(value); err != nil {
			return "", wantFlag
		}
	case protoreflect.StringKind, protoreflect.BytesKind:
	case protoreflect.MessageKind:
		switch f.Message().FullName() {
		case "google.protobuf.Duration": // The mapping also accepts Go's form, such as 1m30s.
			if _, err := time.ParseDuration(value); err != nil {
				return "", "is " + strconv.Quote(value) + "; " + wantDuration
			}
			return value, ""
		case "google.protobuf.Timestamp":
		default:
			return value, ""
		}
		fallthrough
	default:
		if wanted := misfits(value, f); wanted != "" {
			return "", "is " + strconv.Quote(value) + "; " + wanted
		}
	}
	return value, ""
}
