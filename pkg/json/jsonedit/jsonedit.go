// Package jsonedit changes a few values deep within a JSON document and keeps all other bytes as they are written.
//
// An edit gets the bytes of a value and returns those in its place: the same ones if there is nothing to change. A
// document in which nothing changes is returned itself, and so is one of another form than an edit expects. A document
// that is cut off is edited up to the cut.
package jsonedit

import (
	"bytes"

	"github.com/evalfleet/evalfleet/pkg/json/jsonscan"
)

// Edit returns what takes the place of a value.
type Edit func(value []byte) []byte

// Member edits the value of a member of an object, if it has that member once.
func Member(object []byte, name string, edit Edit) []byte {
	value, ok := member(object, name)
	if !ok {
		return object
	}
	before := value.Of(object)
	after := edit(before)
	if Same(before, after) {
		return object
	}
	return bytes.Join([][]byte{object[:value.Start], after, object[value.End:]}, nil)
}

// List edits the elements of a list. An edit that returns nil leaves the element out, with the comma before it; of the
// first ones, with the comma after it. A list of which nothing is left is `[]`.
func List(list []byte, edit Edit) []byte {
	var opening, edited []byte
	changed, some := false, false
	end := 0
	for at := range jsonscan.Elements(list) {
		before, gap := at.Of(list), list[end:at.Start]
		if end == 0 {
			opening = gap
		}
		after := edit(before)
		if !changed && !Same(before, after) {
			changed, edited = true, append(edited, list[:end]...)
		}
		if changed && after != nil {
			if !some {
				gap = opening
			}
			edited = append(append(edited, gap...), after...)
		}
		some, end = some || after != nil, at.End
	}
	switch {
	case !changed:
		return list
	case !some:
		edited = []byte("[")
		return append(edited, bytes.TrimLeft(list[end:], blanks)...)
	default:
		return append(edited, list[end:]...)
	}
}

// Without returns an object without a member, if it has that member once.
func Without(object []byte, name string) []byte {
	value, ok := member(object, name)
	if !ok {
		return object
	}
	key := bytes.LastIndexByte(object[:value.Start], ':')
	start := bytes.LastIndexByte(object[:key], '"')
	start = bytes.LastIndexByte(object[:start], '"')
	before, after := bytes.TrimRight(object[:start], blanks), bytes.TrimLeft(object[value.End:], blanks)
	switch {
	case bytes.HasSuffix(before, comma):
		before = before[:len(before)-1]
	case bytes.HasPrefix(after, comma):
		after = after[1:]
	}
	return bytes.Join([][]byte{before, after}, nil)
}

const blanks = " \t\r\n"

var comma = []byte(",")

func member(object []byte, name string) (value jsonscan.Span, ok bool) {
	var found [1]jsonscan.Span
	err := jsonscan.Object(object, []string{name}, found[:])
	return found[0], err == nil && found[0].Found()
}

// Same reports whether an edit returned the bytes that it got.
func Same(a, b []byte) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}
