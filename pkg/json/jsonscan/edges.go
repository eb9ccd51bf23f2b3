package jsonscan

import "bytes"

// edge is how far a long document is looked into from either end.
const edge = 4 << 10

// Ends returns the first and the last 4 KiB of a document. Of a short one the first is all, and the second nothing.
func Ends(doc []byte) (head, tail []byte) {
	if len(doc) <= 2*edge {
		return doc, nil
	}
	return doc[:edge], doc[len(doc)-edge:]
}

// Edges finds members near the beginning or the end of a long object, and skips what is between: usage follows an
// answer, however long that is. It requires well-formed documents; it finds a member where Object does, or not at all,
// in which case the caller must use Object, unless all was read, as short documents are. If a name occurs twice, one of
// them is found.
func Edges(doc []byte, names []string, found []Span) (all bool) {
	head, tail := Ends(doc)
	if tail == nil {
		if Object(doc, names, found) != nil {
			clear(found)
		}
		return true
	}
	clear(found)
	first(head, names, found)
	for i, name := range names {
		if !found[i].Found() {
			found[i] = last(doc, len(doc)-len(tail), name)
		}
	}
	return false
}

// first finds members of an object that is cut off. One counts if it ends before the cut.
func first(doc []byte, names []string, found []Span) {
	s := scanner{doc: doc}
	if !s.take('{') {
		return
	}
	for {
		name, ok := s.key()
		if !ok || !s.take(':') {
			return
		}
		value, ok := s.value()
		if !ok || !s.take(',') {
			return
		}
		for i := range names {
			if string(name) == names[i] {
				found[i] = value
			}
		}
	}
}

// last finds the last member of that name that is the object's own and begins after from.
//
// Quotes are escaped within texts. So a quoted name without a backslash before it is a text of its own, and if the rest
// of the document parses from there as members and their end, that text is a name in the object that ends last: the
// outermost.
func last(doc []byte, from int, name string) Span {
	quoted := []byte(`"` + name + `"`)
	for end := len(doc); ; {
		at := bytes.LastIndex(doc[from:end], quoted)
		if at < 0 {
			return Span{}
		}
		at += from
		s := scanner{doc: doc, at: at + len(quoted)}
		if value, ok := s.lastMembers(); ok && doc[at-1] != '\\' {
			return value
		}
		end = at + len(quoted) - 1
	}
}

// lastMembers reads from behind a member's name to the end of the document.
func (s *scanner) lastMembers() (wanted Span, ok bool) {
	for {
		if !s.take(':') {
			return Span{}, false
		}
		value, ok := s.value()
		if !ok {
			return Span{}, false
		}
		if !wanted.Found() {
			wanted = value
		}
		if s.take('}') {
			return wanted, s.end() == nil
		}
		if !s.take(',') {
			return Span{}, false
		}
		if _, ok := s.key(); !ok {
			return Span{}, false
		}
	}
}
