package dataset

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/evalfleet/evalfleet/services/agentorch/internal/pycompat/pytext"
)

// ID is a sample's id: an integer or a text, which stay apart although 7 and "7" read alike. The zero ID is not set.
// IDs compare with ==.
type ID struct {
	text string
	kind idKind
}

type idKind uint8

const (
	idUnset idKind = iota
	idInteger
	idText
)

// TextID returns an id of a text, which may be empty.
func TextID(text string) ID { return ID{text: text, kind: idText} }

// IntegerID returns an id of an integer.
func IntegerID(n int) ID { return ID{text: fmt.Sprint(n), kind: idInteger} }

// ParseID returns the id with a text and type, the reverse of String and IsInteger. It fails if integer is set and the
// text is not an integer.
func ParseID(text string, integer bool) (ID, error) {
	if !integer {
		return TextID(text), nil
	}
	unsigned, negative := strings.CutPrefix(text, "-")
	if !negative {
		unsigned = strings.TrimPrefix(text, "+")
	}
	if unsigned == "" || strings.Trim(unsigned, "0123456789") != "" {
		return ID{}, fmt.Errorf("id %q is no integer", text)
	}
	digits := strings.TrimLeft(unsigned, "0")
	switch {
	case digits == "":
		digits = "0"
	case negative:
		digits = "-" + digits
	}
	return ID{text: digits, kind: idInteger}, nil
}

// IsSet reports whether the id is set.
func (id ID) IsSet() bool { return id.kind != idUnset }

// IsInteger reports whether the id is an integer.
func (id ID) IsInteger() bool { return id.kind == idInteger }

// String returns the id as text, without its type.
func (id ID) String() string { return id.text }

// MarshalJSON writes a number, a string, or null when the id is not set.
func (id ID) MarshalJSON() ([]byte, error) {
	switch id.kind {
	case idInteger:
		return []byte(id.text), nil
	case idText:
		return json.Marshal(id.text)
	case idUnset:
	}
	return []byte("null"), nil
}

// UnmarshalJSON reads the format of MarshalJSON.
func (id *ID) UnmarshalJSON(raw []byte) error {
	var text string
	if string(raw) == "null" {
		*id = ID{}
		return nil
	}
	if json.Unmarshal(raw, &text) == nil {
		*id = TextID(text)
		return nil
	}
	read, err := ParseID(string(raw), true)
	if err != nil {
		return fmt.Errorf("a sample's id must be an integer or a string, not %.100s", raw)
	}
	*id = read
	return nil
}

// padding is the number of digits of integers when ids are compared as texts.
const padding = 20

// SortKey is the text that orders the samples of one epoch in logs: integers with leading zeros, texts unchanged.
func (id ID) SortKey() string {
	if id.kind != idInteger {
		return id.text
	}
	sign, digits := "", id.text
	if strings.HasPrefix(digits, "-") {
		sign, digits = "-", digits[1:]
	}
	return sign + strings.Repeat("0", max(0, padding-len(sign)-len(digits))) + digits
}

// matchKey is the text that patterns are compared with. A text of nothing but digits counts as that integer: 007 is 7.
func (id ID) matchKey() string {
	if id.kind != idText || id.text == "" {
		return id.SortKey()
	}
	var digits strings.Builder
	for _, r := range id.text {
		d, ok := pytext.Digit(r)
		if !ok {
			return id.text
		}
		digits.WriteByte(byte('0' + d))
	}
	integer, err := ParseID(digits.String(), true)
	if err != nil {
		return id.text
	}
	return integer.SortKey()
}
