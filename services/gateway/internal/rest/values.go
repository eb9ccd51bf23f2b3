package rest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/evalfleet/evalfleet/pkg/enum"
)

// enumValue returns the name of an enum's value that a caller wrote with or without the enum's prefix, in any case:
// `full` and `RUN_VIEW_FULL` are the same. It is empty where there is none.
func enumValue(d protoreflect.EnumDescriptor, written string) string {
	if v := enum.Find(d, written); v != nil {
		return string(v.Name())
	}
	return ""
}

// unknownValue says which values an enum has, in the short form.
func unknownValue(d protoreflect.EnumDescriptor, written string) string {
	return fmt.Sprintf("unknown value %q; known: %s", written, strings.Join(enum.Words(d), ", "))
}

// Words for values that are none of their kind.
const (
	wantDuration  = "want seconds with an s behind them, such as 600s or 1.5s"
	wantTimestamp = "want a time as in RFC 3339, such as 2030-01-02T03:04:05Z"
	wantNumber    = "want a number"
	wantInteger   = "want a whole number"
	wantFlag      = "want true or false"
	wantText      = "want a text in quotes"
	wantBytes     = "want base64"
)

// duration reports whether a text is a duration as JSON writes one.
func duration(text string) bool {
	seconds, ok := strings.CutSuffix(text, "s")
	_, err := strconv.ParseFloat(seconds, 64)
	return ok && err == nil
}

// integer reports whether a number, or the text of one, is a whole one.
func integer(value string) bool {
	n, err := strconv.ParseFloat(value, 64)
	return err == nil && n == math.Trunc(n)
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
		if !isText {
			return wantBytes
		}
	case protoreflect.EnumKind:
		if isText && enumValue(f.Enum(), text) == "" {
			return unknownValue(f.Enum(), text)
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
		}
	default: // The whole numbers.
		if isNumber && number != math.Trunc(number) || isText && !integer(text) || !isNumber && !isText {
			return wantInteger
		}
	}
	return ""
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
	full, err := json.Marshal(value)
	return full, err == nil
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

// ofQuery returns the value of a query parameter as the mapping takes it, or what is wanted in its place.
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
		case "google.protobuf.Duration": // The mapping reads those of Go, such as 1m30s, too.
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
