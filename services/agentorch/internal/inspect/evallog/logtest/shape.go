package logtest

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/evalfleet/evalfleet/pkg/json/orderedjson"
)

// shape describes the fault of a value: its place, and the expected value. It is empty if there is no fault.
type shape func(value any) (fault string)

// members are the shapes of an object's members. A member whose name ends with ! is required; members that are not
// named may be anything.
type members map[string]shape

func object(named members) shape {
	return func(value any) string {
		o, ok := value.(*orderedjson.Object)
		if !ok {
			return "must be an object"
		}
		for name, s := range named {
			name, required := strings.CutSuffix(name, "!")
			member, there := o.Get(name)
			switch {
			case !there && required:
				return name + " is missing"
			case there:
				if fault := s(member); fault != "" {
					return name + " " + fault
				}
			}
		}
		return ""
	}
}

func mapOf(s shape) shape {
	return func(value any) string {
		o, ok := value.(*orderedjson.Object)
		if !ok {
			return "must be an object"
		}
		for name, member := range o.All() {
			if fault := s(member); fault != "" {
				return name + " " + fault
			}
		}
		return ""
	}
}

func listOf(s shape) shape {
	return func(value any) string {
		list, ok := value.([]any)
		if !ok {
			return "must be a list"
		}
		for i, item := range list {
			if fault := s(item); fault != "" {
				return strconv.Itoa(i) + " " + fault
			}
		}
		return ""
	}
}

func nullable(s shape) shape {
	return func(value any) string {
		if value == nil {
			return ""
		}
		return s(value)
	}
}

// either accepts the values of any of the shapes.
func either(shapes ...shape) shape {
	return func(value any) (fault string) {
		for _, s := range shapes {
			if fault = s(value); fault == "" {
				return ""
			}
		}
		return fault
	}
}

func is(what string, ok func(value any) bool) shape {
	return func(value any) string {
		if ok(value) {
			return ""
		}
		return "must be " + what
	}
}

func oneOf(texts ...string) shape {
	return is("one of "+strings.Join(texts, ", "), func(value any) bool {
		t, ok := value.(string)
		return ok && slices.Contains(texts, t)
	})
}

// Numbers may be given as texts, and a boolean as its number.
var (
	anything = is("anything", func(any) bool { return true })
	text     = is("a text", func(value any) bool {
		_, ok := value.(string)
		return ok
	})
	boolean = is("true or false", func(value any) bool {
		_, ok := value.(bool)
		return ok || slices.Contains([]any{json.Number("0"), json.Number("1"), "true", "false"}, value)
	})
	integer = is("an integer", func(value any) bool {
		literal, ok := numeral(value)
		whole, fraction, _ := strings.Cut(literal, ".")
		_, err := strconv.ParseInt(strings.TrimLeft(whole, "-"), 10, 64)
		return ok && strings.Trim(fraction, "0") == "" && (err == nil || isRange(err))
	})
	number = is("a number", func(value any) bool {
		literal, ok := numeral(value)
		_, err := strconv.ParseFloat(literal, 64)
		return ok && (err == nil || isRange(err))
	})
	identity = either(text, integer)
	moment   = is("a time", func(value any) bool {
		t, ok := value.(string)
		return ok && isTime(t)
	})
	noMoment = either(oneOf(""), moment)
	values   = mapOf(anything)
)

// numeral returns the literal of a number.
func numeral(value any) (literal string, ok bool) {
	switch v := value.(type) {
	case json.Number:
		return string(v), true
	case string:
		return v, true
	case bool:
		return map[bool]string{true: "1", false: "0"}[v], true
	}
	return "", false
}

func isRange(err error) bool { return strings.HasSuffix(err.Error(), strconv.ErrRange.Error()) }

// isTime reports whether a text is a time, with or without an offset.
func isTime(text string) bool {
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05", time.DateTime, time.DateOnly} {
		if _, err := time.Parse(layout, text); err == nil {
			return true
		}
	}
	return false
}
