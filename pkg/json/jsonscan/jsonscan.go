// Package jsonscan finds the positions of members of a JSON object without decoding the document: a program that
// forwards a request unchanged needs only the few values by which it routes.
//
// The scan reads the outermost object member by member. It skips nested values by their quotes and brackets alone.
// Nested values are not validated; the decoder that reads the document does that. For a document that is JSON, nested
// no more than MaxDepth deep, it finds what encoding/json does.
//
// Readers and writers of JSON also use the classes of bytes within a text, and the length of a text that needs no
// escape: Plain, KindOf.
package jsonscan

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
)

// Span is a half-open range of bytes of a document. The zero value is that of a member which is not there.
type Span struct {
	Start, End int
}

// Found reports whether the member is present.
func (s Span) Found() bool { return s.End > s.Start }

// Of returns the bytes of the span in its document; none where the member is not there.
func (s Span) Of(doc []byte) []byte { return doc[s.Start:s.End] }

// ErrNotObject is the error for a document that is not a JSON object.
var ErrNotObject = errors.New("is no JSON object")

// MaxDepth bounds the nesting of objects and lists, the outermost included. Readers of documents are recursive, and
// most of them have a bound of their own between 128 and 10,000.
const MaxDepth = 512

// ErrTooDeep is the error for a document that is nested more deeply than MaxDepth.
var ErrTooDeep = fmt.Errorf("is nested more than %d levels deep", MaxDepth)

// DuplicateError is the error for a wanted member that occurs twice: readers differ in which of them counts, so neither
// is reliable.
type DuplicateError struct {
	// Name is the member's.
	Name string
}

// Error implements error.
func (e *DuplicateError) Error() string {
	return fmt.Sprintf("has the member %q more than once", e.Name)
}

// Object finds members of the object in doc: found[i] becomes the position of the value of the member names[i]. found
// must be as long as names. Names are compared in their decoded form. It fails with an error that wraps ErrNotObject,
// with ErrTooDeep, or with *DuplicateError.
func Object(doc []byte, names []string, found []Span) error {
	clear(found)
	s := scanner{doc: doc}
	if !s.take('{') {
		return ErrNotObject
	}
	if s.take('}') {
		return s.end()
	}
	for {
		name, ok := s.key()
		if !ok || !s.take(':') {
			return s.broken()
		}
		value, ok := s.value()
		if s.tooDeep {
			return ErrTooDeep
		}
		if !ok {
			return s.broken()
		}
		for i := range names {
			if string(name) != names[i] {
				continue
			}
			if found[i].Found() {
				return &DuplicateError{Name: names[i]}
			}
			found[i] = value
		}
		switch {
		case s.take(','):
		case s.take('}'):
			return s.end()
		default:
			return s.broken()
		}
	}
}

// Elements returns the positions of the elements of a list, up to where it breaks; none for another value.
func Elements(list []byte) iter.Seq[Span] {
	return func(yield func(Span) bool) {
		s := scanner{doc: list}
		for more := s.take('['); more; more = s.take(',') {
			value, ok := s.value()
			if !ok || !yield(value) {
				return
			}
		}
	}
}

// scanner is a place in a document.
type scanner struct {
	doc []byte
	at  int
	// tooDeep is set if the scan stopped for the depth.
	tooDeep bool
}

func (s *scanner) broken() error { return fmt.Errorf("%w: it breaks at byte %d", ErrNotObject, s.at) }

// end checks that nothing follows.
func (s *scanner) end() error {
	s.blanks()
	if s.at < len(s.doc) {
		return s.broken()
	}
	return nil
}

func (s *scanner) blanks() {
	for s.at < len(s.doc) && isBlank(s.doc[s.at]) {
		s.at++
	}
}

func isBlank(c byte) bool { return c == ' ' || c == '\n' || c == '\r' || c == '\t' }

// take passes over one byte, with blanks before it, if it is the next.
func (s *scanner) take(c byte) bool {
	s.blanks()
	if s.at < len(s.doc) && s.doc[s.at] == c {
		s.at++
		return true
	}
	return false
}

// key reads a member's name.
func (s *scanner) key() (name []byte, ok bool) {
	if !s.take('"') {
		return nil, false
	}
	start := s.at
	if !s.text() {
		return nil, false
	}
	name = s.doc[start : s.at-1]
	if bytes.IndexByte(name, '\\') >= 0 {
		var text string
		if json.Unmarshal(s.doc[start-1:s.at], &text) != nil {
			return nil, false
		}
		name = []byte(text)
	}
	return name, true
}

// value passes over a value.
func (s *scanner) value() (Span, bool) {
	s.blanks()
	start, ok := s.at, false
	switch c := s.peek(); c {
	case '"':
		s.at++
		ok = s.text()
	case '{', '[':
		ok = s.nested()
	default:
		for s.at < len(s.doc) && kinds[s.doc[s.at]] == plain {
			s.at++
		}
		ok = s.at > start
	}
	return Span{start, s.at}, ok
}

// peek returns the next byte; 0 at the end.
func (s *scanner) peek() byte {
	if s.at == len(s.doc) {
		return 0
	}
	return s.doc[s.at]
}

// The meaning of a byte outside of texts for the scan.
const (
	plain = iota
	divides
	opens
	closes
	quotes
)

var kinds = [256]uint8{
	' ': divides, '\n': divides, '\r': divides, '\t': divides, ',': divides, ':': divides,
	'{': opens, '[': opens, '}': closes, ']': closes, '"': quotes,
}

// nested passes over an object or a list.
func (s *scanner) nested() bool {
	depth := 1 // that of the outermost object
	for s.at < len(s.doc) {
		kind := kinds[s.doc[s.at]]
		s.at++
		switch kind {
		case opens:
			if depth++; depth > MaxDepth {
				s.tooDeep = true
				return false
			}
		case closes:
			if depth--; depth == 1 {
				return true
			}
		case quotes:
			if !s.text() {
				return false
			}
		}
	}
	return false
}
