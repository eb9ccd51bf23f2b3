package jsonread

import (
	"bytes"
	"encoding/json"
	"strings"
)

// Raw is an undecoded value. Unmarshal makes it a part of the document, whereas a json.RawMessage is a copy: the
// document must not be modified while it is used.
type Raw []byte

// UnmarshalJSON implements json.Unmarshaler.
func (r *Raw) UnmarshalJSON(raw []byte) error {
	*r = bytes.Clone(raw)
	return nil
}

// TextOrRaw is a value that is often a text. The zero value is that of a member which is not there.
type TextOrRaw struct {
	// Text is the text, if IsText.
	Text   string
	IsText bool
	// Raw is any other value.
	Raw Raw
}

// TakeText implements TextTaker.
func (t *TextOrRaw) TakeText(text string) { *t = TextOrRaw{Text: text, IsText: true} }

// UnmarshalJSON implements json.Unmarshaler.
func (t *TextOrRaw) UnmarshalJSON(raw []byte) error {
	if raw[0] != '"' {
		*t = TextOrRaw{Raw: bytes.Clone(raw)}
		return nil
	}
	var text string
	err := json.Unmarshal(raw, &text)
	t.TakeText(text)
	return err
}

// Absent reports whether the member is missing or null.
func (t TextOrRaw) Absent() bool { return !t.IsText && !IsSet(t.Raw) }

// IsSet reports whether the undecoded value of a member is there, and not null.
func IsSet(raw []byte) bool { return len(raw) > 0 && string(raw) != "null" }

// IsObject reports whether a document is a JSON object.
func IsObject(document string) bool { return begins(document, '{') }

// IsList reports whether a document is a JSON list.
func IsList(document string) bool { return begins(document, '[') }

func begins(document string, bracket byte) bool {
	trimmed := strings.TrimLeft(document, " \t\r\n")
	return trimmed != "" && trimmed[0] == bracket && json.Valid([]byte(document))
}

// UnmarshalTyped decodes an object whose member `type` says what it is: all of it if the type is known, and else its
// type alone, into kind. Members of other types may have the names of these, and be something else.
func UnmarshalTyped(doc []byte, into any, known map[string]bool, kind *string) error {
	var head struct {
		Type string `json:"type"`
	}
	if err := Unmarshal(doc, &head); err != nil {
		return err
	}
	if !known[head.Type] {
		*kind = head.Type
		return nil
	}
	return Unmarshal(doc, into)
}
