package dataset

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/bound"
	"github.com/evalfleet/evalfleet/pkg/json/orderedjson"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/pycompat/pyregexp"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/pycompat/pytext"
)

// reader takes one value out of a row. Found is false when the row lacks it and may.
type reader interface {
	read(columns *orderedjson.Object) (value any, found bool, err *Error)
	// uses are the columns that every row must have.
	uses() []string
}

// compile makes the reader of a source.
func (s Source) compile() (reader, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	switch {
	case s.Template != "":
		parts, err := parseTemplate(s.Template)
		return template{parts: parts, optional: s.Optional, left: new(bound.DatasetBytes)}, err
	case s.Pattern != "":
		return compilePattern(s)
	}
	return column{name: s.Column, optional: s.Optional}, nil
}

// column reads a column unchanged.
type column struct {
	name     string
	optional bool
}

func (c column) uses() []string {
	if c.optional {
		return nil
	}
	return []string{c.name}
}

func (c column) read(columns *orderedjson.Object) (any, bool, *Error) {
	value, ok := columns.Get(c.name)
	if !ok && !c.optional {
		return nil, false, missing(c.name, columns)
	}
	return value, ok, nil
}

func missing(name string, columns *orderedjson.Object) *Error {
	names := make([]string, 0, columns.Len())
	for name := range columns.All() {
		names = append(names, name)
	}
	return missingFrom(name, names)
}

// noInput is the error if no column is named input. It explains how to map another column.
func noInput(columns *orderedjson.Object) *Error {
	e := missing("input", columns)
	for name := range columns.All() {
		e.Problem = fmt.Sprintf("%s: name the one that holds the input, such as `fields: {input: %s}`", strings.TrimSuffix(e.Problem, howToMend), name)
		break
	}
	return e
}

// howToMend ends the message about a column that is not there.
const howToMend = ": correct the mapping or the data, or mark the source optional"

func missingFrom(name string, columns []string) *Error {
	e := problem("there is no such column, %s%s", columnsOf(columns), howToMend)
	e.Column = name
	return e
}

// templatePart is literal text or, when column is set, a place for a column.
type templatePart struct {
	literal, column string
	isColumn        bool
}

// template puts columns into text.
type template struct {
	parts    []templatePart
	optional bool
	left     *int // bytes that all rows of one reading may still make
}

// parseTemplate splits `text {column} text`. Doubled braces are single ones.
func parseTemplate(text string) ([]templatePart, error) {
	var parts []templatePart
	var literal strings.Builder
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case (c == '{' || c == '}') && strings.HasPrefix(text[i+1:], string(c)):
			literal.WriteByte(c)
			i++
		case c == '}':
			return nil, fmt.Errorf("the template has a } at byte %d that closes nothing: double it if it is text", i)
		case c == '{':
			end := strings.IndexAny(text[i+1:], "{}")
			if end < 0 || text[i+1+end] == '{' {
				return nil, fmt.Errorf("the template has a { at byte %d that is not closed: double it if it is text", i)
			}
			if end == 0 {
				return nil, fmt.Errorf("the template names no column at byte %d: write {column}, or double the braces", i)
			}
			parts = append(parts, templatePart{literal: literal.String()}, templatePart{column: text[i+1 : i+1+end], isColumn: true})
			literal.Reset()
			i += end + 1
		default:
			literal.WriteByte(c)
		}
	}
	return append(parts, templatePart{literal: literal.String()}), nil
}

func (t template) uses() []string {
	var names []string
	for _, part := range t.parts {
		if part.isColumn && !t.optional {
			names = append(names, part.column)
		}
	}
	return names
}

func (t template) read(columns *orderedjson.Object) (any, bool, *Error) {
	var b strings.Builder
	for _, part := range t.parts {
		if !part.isColumn {
			b.WriteString(part.literal)
			continue
		}
		text, found, err := textOf(part.column, columns, t.optional)
		if err != nil || !found {
			return nil, false, err
		}
		if b.Len()+len(text) > bound.DatasetRowBytes {
			return nil, false, problem("the template makes more than %d bytes of one row, the bound of a row: name the column less often", bound.DatasetRowBytes)
		}
		b.WriteString(text)
	}
	if *t.left -= b.Len(); *t.left < 0 {
		return nil, false, problem("the template makes more than %d bytes of all rows, the bound of a data set: name the columns less often, or split the file", bound.DatasetBytes)
	}
	return b.String(), true, nil
}

// textOf reads a column as text: strings unchanged, numbers and booleans as Python writes them, lists and objects as
// JSON. Null counts as an absent column.
func textOf(name string, columns *orderedjson.Object, optional bool) (text string, found bool, err *Error) {
	value, ok := columns.Get(name)
	switch v := value.(type) {
	case nil:
		if optional {
			return "", false, nil
		}
		if !ok {
			return "", false, missing(name, columns)
		}
		e := problem("the value is null where text is wanted: complete the row, or mark the source optional")
		e.Column = name
		return "", false, e
	case []any, *orderedjson.Object:
		return string(orderedjson.Append(nil, v)), true, nil
	}
	return pytext.Str(value), true, nil
}

// pattern reads the part of a column that a regular expression finds.
type pattern struct {
	column   string
	source   string
	re       *pyregexp.Regexp
	group    int
	optional bool
}

func compilePattern(s Source) (reader, error) {
	re, err := pyregexp.Compile(s.Pattern, false)
	if err != nil {
		return nil, err
	}
	group := min(re.Groups(), 1)
	if s.Group != "" {
		named, ok := re.Group(s.Group)
		if !ok {
			if named, err = strconv.Atoi(s.Group); err != nil || named < 0 || named > re.Groups() {
				return nil, fmt.Errorf("the pattern %q has no group %s", s.Pattern, s.Group)
			}
		}
		group = named
	}
	return pattern{column: s.Column, source: s.Pattern, re: re, group: group, optional: s.Optional}, nil
}

func (p pattern) uses() []string { return column{name: p.column, optional: p.optional}.uses() }

func (p pattern) read(columns *orderedjson.Object) (any, bool, *Error) {
	text, found, fault := textOf(p.column, columns, p.optional)
	if fault != nil || !found {
		return nil, false, fault
	}
	m, found, err := p.re.Search(text)
	if err != nil {
		return nil, false, &Error{Column: p.column, Problem: fmt.Sprintf("pattern %q: %v", p.source, err)}
	}
	value, took := m.Group(p.group)
	if found && took {
		return value, true, nil
	}
	if p.optional {
		return nil, false, nil
	}
	return nil, false, &Error{Column: p.column, Problem: fmt.Sprintf("the pattern %q finds nothing in %.80q: correct the pattern or the data, "+
		"or mark the source optional", p.source, text)}
}

// lacking returns the first column that readers need and a header does not have.
func lacking(readers []reader, columns []string) (string, bool) {
	for _, r := range readers {
		for _, name := range r.uses() {
			if !slices.Contains(columns, name) {
				return name, true
			}
		}
	}
	return "", false
}
