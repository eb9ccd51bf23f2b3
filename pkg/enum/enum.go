// Package enum writes values of the protocol's enums as short words and reads them: `capacity` is WAIT_REASON_CAPACITY.
// The command line, task files and exported logs use the words; only the protocol's own JSON uses the full names.
package enum

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// Enum is a generated enum.
type Enum interface {
	~int32
	protoreflect.Enum
}

// Word returns the word for a value: its name in lower case without the enum's prefix. It is empty for the value
// UNSPECIFIED, and the number of an unknown value.
func Word(v protoreflect.Enum) string {
	d := v.Descriptor()
	known := d.Values().ByNumber(v.Number())
	switch {
	case known == nil:
		return fmt.Sprint(v.Number())
	case v.Number() == 0:
		return ""
	}
	return word(known)
}

// Parse returns the value for a word, in any case, with or without the enum's prefix. The empty word is the value
// UNSPECIFIED.
func Parse[E Enum](word string) (E, bool) {
	if word == "" {
		return 0, true
	}
	var none E
	v := Find(none.Descriptor(), word)
	if v == nil {
		return 0, false
	}
	return E(v.Number()), true
}

// Find is Parse for an enum that is known only by its descriptor. It is nil if there is no such value.
func Find(d protoreflect.EnumDescriptor, word string) protoreflect.EnumValueDescriptor {
	name := protoreflect.Name(strings.ToUpper(word))
	if v := d.Values().ByName(name); v != nil {
		return v
	}
	return d.Values().ByName(protoreflect.Name(prefix(d)) + name)
}

// Words returns the words of an enum in the order of its values, without the empty one.
func Words(d protoreflect.EnumDescriptor) []string {
	words := make([]string, 0, d.Values().Len())
	for i := range d.Values().Len() {
		if v := d.Values().Get(i); v.Number() != 0 {
			words = append(words, word(v))
		}
	}
	return words
}

func word(v protoreflect.EnumValueDescriptor) string {
	return strings.ToLower(strings.TrimPrefix(string(v.Name()), prefix(v.Parent().(protoreflect.EnumDescriptor))))
}

// prefix is the common prefix of the names of an enum's values, taken from the first one, such as
// `RUN_VIEW_UNSPECIFIED`.
func prefix(d protoreflect.EnumDescriptor) string {
	return strings.TrimSuffix(string(d.Values().Get(0).Name()), "UNSPECIFIED")
}
