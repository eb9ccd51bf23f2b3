package score

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/evalfleet/evalfleet/services/agentorch/internal/pycompat/pytext"
)

// The four grades that most scorers give.
const (
	Correct   = "C" // counts 1
	Incorrect = "I" // counts 0
	Partial   = "P" // counts 0.5
	NoAnswer  = "N" // counts 0: the model gave nothing to judge
)

// Kind is the type of a Value.
type Kind uint8

// The kinds of values. A list or map holds scalars only.
const (
	KindNull Kind = iota // nothing; only an entry of a map may be null
	KindText
	KindNumber
	KindBool
	KindList
	KindMap
)

// Value is a scorer's result for a sample: text (often a grade), a number, a bool, or a list or map of those. The
// number NaN means that the sample could not be scored; metrics and reducers leave it out. The zero Value is null.
// Values are immutable and may be shared.
type Value struct {
	kind    Kind
	text    string // of a text; of a number the literal it was read from, or "" when it was computed
	number  float64
	list    []Value
	entries []Entry
	places  map[string]int // of the entries by their keys, if there are more than a few
}

// Entry is one key of a map value.
type Entry struct {
	Key   string
	Value Value
}

// Text returns a text value.
func Text(s string) Value { return Value{kind: KindText, text: s} }

// Number returns a number value, which is written with a point or an exponent: 1.0.
func Number(f float64) Value { return Value{kind: KindNumber, number: f} }

// Integer returns a number value that is written without a point: 1.
func Integer(n int) Value { return Value{kind: KindNumber, number: float64(n), text: strconv.Itoa(n)} }

// Bool returns a bool value.
func Bool(b bool) Value {
	v := Value{kind: KindBool}
	if b {
		v.number = 1
	}
	return v
}

// List returns a list value.
func List(items ...Value) Value { return Value{kind: KindList, list: slices.Clip(items)} }

// few is up to how many entries are looked through for one.
const few = 8

// Map returns a map value that keeps the order of its entries. Keys must differ.
func Map(entries ...Entry) Value {
	v := Value{kind: KindMap, entries: slices.Clip(entries)}
	if len(entries) > few {
		v.places = make(map[string]int, len(entries))
		for i, entry := range slices.Backward(entries) {
			v.places[entry.Key] = i
		}
	}
	return v
}

// Unscored returns the value of a sample that could not be scored.
func Unscored() Value { return Number(math.NaN()) }

// Kind returns the type of the value.
func (v Value) Kind() Kind { return v.kind }

// IsUnscored reports whether the value is the number NaN.
func (v Value) IsUnscored() bool { return v.kind == KindNumber && math.IsNaN(v.number) }

// IsScalar reports whether the value is neither list nor map.
func (v Value) IsScalar() bool { return v.kind != KindList && v.kind != KindMap }

// Items returns the items of a list, nil for other kinds. The slice must not be changed.
func (v Value) Items() []Value { return v.list }

// Entries returns the entries of a map in order, nil for other kinds. The slice must not be changed.
func (v Value) Entries() []Entry { return v.entries }

// Lookup returns the entry of a map value.
func (v Value) Lookup(key string) (Value, bool) {
	if v.places != nil {
		at, known := v.places[key]
		if !known {
			return Value{}, false
		}
		return v.entries[at].Value, true
	}
	for _, entry := range v.entries {
		if entry.Key == key {
			return entry.Value, true
		}
	}
	return Value{}, false
}

// Float converts a value to the number that metrics compute with: numbers as they are, true 1 and false 0, the grades C
// 1, P 0.5, I and N 0, the words yes and true 1, no and false 0 in any case, and texts of finite numbers. Everything
// else is 0 and not ok, which is worth a warning.
func (v Value) Float() (f float64, ok bool) {
	switch v.kind {
	case KindNumber, KindBool:
		return v.number, true
	case KindText:
		return textFloat(v.text)
	case KindNull, KindList, KindMap:
	}
	return 0, false
}

func textFloat(s string) (float64, bool) {
	switch s {
	case Correct:
		return 1, true
	case Partial:
		return 0.5, true
	case Incorrect, NoAnswer:
		return 0, true
	}
	switch lower := pytext.Lower(s); lower {
	case "yes", "true":
		return 1, true
	case "no", "false":
		return 0, true
	default:
		return pytext.ParseFinite(lower)
	}
}

// Equal reports whether two values are the same. Numbers compare by value and with bools, so that 1, 1.0 and true are
// equal; NaN equals nothing; maps compare without regard to order.
func (v Value) Equal(other Value) bool {
	if v.isNumeric() && other.isNumeric() {
		return v.number == other.number
	}
	if v.kind != other.kind {
		return false
	}
	switch v.kind {
	case KindText:
		return v.text == other.text
	case KindList:
		return slices.EqualFunc(v.list, other.list, Value.Equal)
	case KindMap:
		return len(v.entries) == len(other.entries) && !slices.ContainsFunc(v.entries, func(entry Entry) bool {
			theirs, ok := other.Lookup(entry.Key)
			return !ok || !entry.Value.Equal(theirs)
		})
	case KindNull, KindNumber, KindBool:
	}
	return true
}

// Scalar is equal for two scalars exactly if they are Equal, so that it can be a key of maps. NaN never equals itself.
type Scalar struct {
	kind   Kind
	number float64
	text   string
}

// Scalar returns the key of a scalar; lists and maps have no key.
func (v Value) Scalar() Scalar {
	switch {
	case v.isNumeric():
		return Scalar{kind: KindNumber, number: v.number}
	case v.kind == KindText:
		return Scalar{kind: KindText, text: v.text}
	}
	return Scalar{kind: v.kind}
}

func (v Value) isNumeric() bool { return v.kind == KindNumber || v.kind == KindBool }

// Text returns the value as people read it: a text as it is, numbers and bools as Python writes them, lists and maps as
// JSON.
func (v Value) Text() string {
	switch v.kind {
	case KindText:
		return v.text
	case KindBool:
		if v.number == 1 {
			return "True"
		}
		return "False"
	case KindNull:
		return "None"
	case KindNumber:
		if v.text != "" && !strings.ContainsAny(v.text, ".eE") {
			return v.text
		}
		return pytext.FormatFloat(v.number)
	case KindList, KindMap:
	}
	return string(v.appendJSON(nil, strconv.AppendQuote))
}
