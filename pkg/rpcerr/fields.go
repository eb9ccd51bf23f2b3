package rpcerr

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/evalfleet/evalfleet/pkg/bound"
)

// Fields collects the invalid fields of a request: the first bound.FieldViolations of them, and the number of the
// others. The zero value has none.
type Fields struct {
	list []Field
	more int
}

// Add notes a field; the path is empty for the whole request.
func (f *Fields) Add(path, description string) {
	if len(f.list) == bound.FieldViolations {
		f.more++
		return
	}
	f.list = append(f.list, Field{Path: cut(path, bound.FieldPathBytes), Description: cut(description, bound.FieldDescriptionBytes)})
}

// Full reports whether a further field would only be counted, so that its description need not be made.
func (f *Fields) Full() bool { return len(f.list) == bound.FieldViolations }

// Len is how many fields were noted.
func (f *Fields) Len() int { return len(f.list) + f.more }

// Err returns INVALID_REQUEST with the fields and a message that lists all of them; nil if there are none.
func (f *Fields) Err() error {
	if len(f.list) == 0 {
		return nil
	}
	e := InvalidRequest("")
	said := make([]string, 0, len(f.list)+1)
	for _, field := range f.list {
		e.Fields = append(e.Fields, field)
		said = append(said, strings.TrimPrefix(field.Path+": "+field.Description, ": "))
	}
	if f.more > 0 {
		said = append(said, fmt.Sprintf("and %d more", f.more))
	}
	e.Message = strings.Join(said, "; ")
	return e
}

// cut returns at most maxBytes of text, and marks text that was cut.
func cut(text string, maxBytes int) string {
	if len(text) <= maxBytes {
		return text
	}
	const mark = "…"
	end := maxBytes - len(mark)
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + mark
}
