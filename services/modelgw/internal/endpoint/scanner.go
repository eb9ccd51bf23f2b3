package endpoint

import (
	"bytes"
	"errors"
	"slices"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/dialect"
	"github.com/evalfleet/evalfleet/pkg/json/jsonscan"
)

// members are the members of a request that the lanes need.
type members struct {
	// model is the name of the model.
	model jsonscan.Span
	// outputBound bounds output tokens; nil if the request does not.
	outputBound *int64
	// modes are the words by which the request asks for a mode of the vendor with prices of its own.
	modes []string
}

// scanner finds the members of a request in one format. It is constant, so that a request costs no more than the scan.
type scanner struct {
	// heads are the outermost members.
	heads []string
	paths []memberPath
	// meanings is the number of different things that the paths say.
	meanings int
}

// memberPath is a member of a request, or a member within one.
type memberPath struct {
	// name is how clients write it, with a dot before the inner name.
	name string
	// head is the place of the outermost member in heads; inner is the inner name, or none.
	head  int
	inner []string
	role  memberRole
	// meaning is the same for spellings of the same thing.
	meaning int
}

type memberRole int

const (
	namesModel memberRole = iota
	boundsOutput
	asksForMode
	refusedUnlessFalse
)

// newScanner returns the scanner for members by their roles. In a name, a dot is before the name of a member within a
// member. All members that name the model mean the same, and of the others the spellings in camelCase and snake_case.
func newScanner(named, bounds, modes, refused []string) *scanner {
	s := &scanner{}
	var meanings []string
	for role, names := range [][]string{namesModel: named, boundsOutput: bounds, asksForMode: modes, refusedUnlessFalse: refused} {
		for _, name := range names {
			head, inner, nested := strings.Cut(name, ".")
			p := memberPath{name: name, role: memberRole(role)}
			if nested {
				p.inner = []string{inner}
			}
			meaning := modelMember
			if p.role != namesModel {
				meaning = strings.ReplaceAll(strings.ToLower(name), "_", "")
			}
			s.heads, p.head = place(s.heads, head)
			meanings, p.meaning = place(meanings, meaning)
			s.paths = append(s.paths, p)
		}
	}
	s.meanings = len(meanings)
	return s
}

// place returns the place of a text in a list, to which it is appended if it is not there.
func place(list []string, text string) ([]string, int) {
	if at := slices.Index(list, text); at >= 0 {
		return list, at
	}
	return append(list, text), len(list)
}

// scan finds the members. A request has each once, in whichever spelling: otherwise the vendor might use another one
// than is found here.
func (s *scanner) scan(doc []byte) (*members, error) {
	outer := make([]jsonscan.Span, len(s.heads))
	if err := scanObject(doc, s.heads, outer); err != nil {
		return nil, err
	}
	m := &members{}
	said := make([]bool, s.meanings)
	for i := range s.paths {
		p := &s.paths[i]
		span, err := p.within(doc, outer[p.head])
		if err != nil {
			return nil, err
		}
		if !span.Found() {
			continue
		}
		if said[p.meaning] {
			return nil, dialect.Invalid(p.name, "is there more than once")
		}
		said[p.meaning] = true
		switch p.role {
		case namesModel:
			m.model = span
		case boundsOutput:
			if n, isInt := jsonscan.Int(span.Of(doc)); m.outputBound == nil && isInt && n > 0 {
				m.outputBound = &n
			}
		case asksForMode:
			if word, ok := jsonscan.Text(span.Of(doc)); ok {
				m.modes = append(m.modes, word)
			}
		case refusedUnlessFalse:
			if value := string(span.Of(doc)); value != "false" && value != "null" {
				return nil, dialect.NotSupported(p.name, "is not supported here: an answer that comes later cannot be counted; leave it out")
			}
		}
	}
	return m, nil
}

// within returns the member, whose outermost member is at span.
func (p *memberPath) within(doc []byte, span jsonscan.Span) (jsonscan.Span, error) {
	if p.inner == nil {
		return span, nil
	}
	if !bytes.HasPrefix(span.Of(doc), []byte("{")) {
		return jsonscan.Span{}, nil // It is missing, null, or wrong, which its reader reports.
	}
	var found [1]jsonscan.Span
	if err := scanObject(span.Of(doc), p.inner, found[:]); err != nil || !found[0].Found() {
		return jsonscan.Span{}, err
	}
	return jsonscan.Span{Start: span.Start + found[0].Start, End: span.Start + found[0].End}, nil
}

// scanObject finds members of an object, with errors for the client.
func scanObject(doc []byte, names []string, found []jsonscan.Span) error {
	err := jsonscan.Object(doc, names, found)
	if duplicate, ok := errors.AsType[*jsonscan.DuplicateError](err); ok {
		return dialect.Invalid(duplicate.Name, "is there more than once")
	}
	if err != nil {
		return dialect.Invalid("", "the body %v", err)
	}
	return nil
}
