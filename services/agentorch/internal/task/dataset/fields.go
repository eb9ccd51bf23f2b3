package dataset

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/json/orderedjson"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// Fields maps columns to the fields of a sample. A nil field comes from the column of its own name if a row has it. A
// field with a source must be in every row, unless the source is optional.
type Fields struct {
	Input, Target, Choices, ID, Sandbox, Files, Setup *Source
	// Metadata is nil for the column `metadata`, which holds an object or the JSON text of one.
	Metadata *Metadata
}

// Source is the source of a value: a column, a template over columns, or a pattern over a column. In JSON it is the
// name of a column, or an object with the members below.
type Source struct {
	// Column is the column's name.
	Column string
	// Template is text with columns in braces: `{question}\n\nHint: {hint}`. Braces that are meant as such are doubled.
	Template string
	// Pattern is a regular expression in the syntax of Python's re. Its first match in the column is the value.
	Pattern string
	// Group is the pattern's group, by name or number, that is the value. Empty takes the first group, or the whole
	// match without groups.
	Group string
	// Optional is set if a row may lack the value; the field is then as if it had no source.
	Optional bool
}

// Metadata defines the source of a sample's metadata. Exactly one member is set. In JSON it is a list of columns,
// `"*"`, the name of a column, or an object of sources by name.
type Metadata struct {
	// Columns are gathered under their names.
	Columns []string
	// All gathers every column.
	All bool
	// Column holds an object, or the JSON text of one.
	Column string
	// Named are gathered under new names.
	Named []NamedSource
}

// NamedSource is a source of metadata and the name it gets.
type NamedSource struct {
	Name   string
	Source Source
}

// fieldNames are the fields of a sample in the order of messages.
var fieldNames = []string{"input", "target", "choices", "id", "metadata", "sandbox", "files", "setup"}

// ParseFields reads the JSON object of a mapping from fields to sources. Empty text is the zero Fields. It fails with
// INVALID_REQUEST on unknown fields and on sources that cannot be read.
func ParseFields(raw []byte) (Fields, error) {
	var f Fields
	if len(raw) == 0 {
		return f, nil
	}
	object, err := orderedjson.DecodeObject(raw)
	if err != nil {
		return f, rpcerr.InvalidField("fields_json", "want an object from fields of a sample to columns: %v", err)
	}
	sources := f.byName()
	for name, value := range object.All() {
		if name == "metadata" {
			f.Metadata, err = parseMetadata(value)
		} else if to, known := sources[name]; known {
			*to, err = parseSource(value)
		} else {
			err = fmt.Errorf("is no field of a sample; known: %s", strings.Join(fieldNames, ", "))
		}
		if err != nil {
			return Fields{}, rpcerr.InvalidField("fields_json/"+name, "%v", err)
		}
	}
	return f, nil
}

// byName returns the fields by name, without metadata.
func (f *Fields) byName() map[string]**Source {
	return map[string]**Source{
		"input": &f.Input, "target": &f.Target, "choices": &f.Choices, "id": &f.ID, "sandbox": &f.Sandbox, "files": &f.Files, "setup": &f.Setup,
	}
}

func parseSource(value any) (*Source, error) {
	if value == nil {
		return nil, nil
	}
	if column, ok := value.(string); ok {
		return &Source{Column: column}, nil
	}
	object, ok := value.(*orderedjson.Object)
	if !ok {
		return nil, fmt.Errorf("want a column's name, or an object with template, or with column, pattern and group")
	}
	var s Source
	texts := map[string]*string{"column": &s.Column, "template": &s.Template, "pattern": &s.Pattern, "group": &s.Group}
	for name, member := range object.All() {
		var right bool
		switch to := texts[name]; {
		case name == "optional":
			s.Optional, right = member.(bool)
		case to == nil:
			return nil, fmt.Errorf("%q is not known; known: column, template, pattern, group, optional", name)
		case name == "group":
			var n json.Number
			if n, right = member.(json.Number); right {
				*to = n.String()
				break
			}
			fallthrough
		default:
			*to, right = member.(string)
		}
		if !right {
			return nil, fmt.Errorf("%s cannot be a JSON %s", name, orderedjson.Kind(member))
		}
	}
	return &s, s.check()
}

// check refuses a source with no member, or with two.
func (s Source) check() error {
	switch {
	case s.Template != "" && (s.Column != "" || s.Pattern != ""):
		return fmt.Errorf("template stands alone: it names its columns in braces")
	case s.Template == "" && s.Column == "":
		return fmt.Errorf("column or template is required")
	case s.Group != "" && s.Pattern == "":
		return fmt.Errorf("group needs a pattern")
	}
	return nil
}

func parseMetadata(value any) (*Metadata, error) {
	switch v := value.(type) {
	case nil:
		return nil, nil
	case string:
		if v == "*" {
			return &Metadata{All: true}, nil
		}
		return &Metadata{Column: v}, nil
	case []any:
		columns := make([]string, len(v))
		for i, item := range v {
			name, ok := item.(string)
			if !ok {
				return nil, fmt.Errorf("want a list of columns' names")
			}
			columns[i] = name
		}
		return &Metadata{Columns: columns}, nil
	case *orderedjson.Object:
		m := &Metadata{Named: []NamedSource{}}
		for name, member := range v.All() {
			source, err := parseSource(member)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			if source == nil {
				return nil, fmt.Errorf("%s: want a source", name)
			}
			m.Named = append(m.Named, NamedSource{Name: name, Source: *source})
		}
		return m, nil
	}
	return nil, fmt.Errorf(`want a list of columns, "*" for all of them, the name of a column, or an object from names to sources`)
}

// columnsOf lists the columns of a row, for messages.
func columnsOf(columns []string) string {
	if len(columns) == 0 {
		return "it has no columns"
	}
	const few = 20
	names := slices.Clone(columns[:min(few, len(columns))])
	text := "its columns are " + strings.Join(names, ", ")
	if len(columns) > few {
		text += fmt.Sprintf(" and %d more", len(columns)-few)
	}
	return text
}
