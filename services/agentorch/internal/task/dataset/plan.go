package dataset

import (
	"fmt"
	"slices"

	"github.com/evalfleet/evalfleet/pkg/json/orderedjson"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// plan is compiled Fields: how to make a sample of a row.
type plan struct {
	fields   map[string]reader
	metadata *Metadata
	named    []reader // of metadata.Named, in its order
	// byDefault is set if the mapping names no source of the input, which then comes from the column of its own name.
	byDefault bool
}

// compile checks the sources and makes a plan of them. It fails with INVALID_REQUEST.
func (f *Fields) compile() (*plan, error) {
	p := &plan{fields: map[string]reader{}, metadata: f.Metadata, byDefault: f.Input == nil}
	sources := f.byName()
	for _, name := range fieldNames {
		source, ok := sources[name]
		if !ok {
			continue // metadata, which has sources of its own
		}
		if *source == nil {
			p.fields[name] = column{name: name, optional: true}
			continue
		}
		r, err := (*source).compile()
		if err != nil {
			return nil, rpcerr.InvalidField("fields_json/"+name, "%v", err)
		}
		p.fields[name] = r
	}
	if f.Metadata == nil {
		return p, nil
	}
	for _, named := range f.Metadata.Named {
		r, err := named.Source.compile()
		if err != nil {
			return nil, rpcerr.InvalidField("fields_json/metadata/"+named.Name, "%v", err)
		}
		p.named = append(p.named, r)
	}
	return p, nil
}

// checkColumns refuses a header that lacks a column which the plan needs.
func (p *plan) checkColumns(columns []string) *Error {
	for _, field := range fieldNames {
		readers := []reader{p.fields[field]}
		if field == "metadata" {
			readers = p.metadataReaders()
		}
		if name, lacks := lacking(readers, columns); lacks {
			fault := missingFrom(name, columns)
			fault.Field = field
			return fault
		}
	}
	return nil
}

func (p *plan) metadataReaders() []reader {
	if p.metadata == nil {
		return nil
	}
	readers := slices.Clone(p.named)
	for _, name := range p.metadata.Columns {
		readers = append(readers, column{name: name})
	}
	if p.metadata.Column != "" {
		readers = append(readers, column{name: p.metadata.Column})
	}
	return readers
}

// sample returns a sample of a row.
func (p *plan) sample(r row, resolve resolver) (Sample, *Error) {
	var s Sample
	steps := []struct {
		field string
		set   func(*Sample, value) error
	}{
		{"input", setInput},
		{"target", setTarget},
		{"choices", setChoices},
		{"id", setID},
		{"sandbox", setSandbox},
		{"files", setFiles},
		{"setup", setSetup},
	}
	for _, step := range steps {
		from := p.fields[step.field]
		given, found, fault := from.read(r.columns)
		if step.field == "input" && !found && fault == nil && r.columns.Len() > 0 && p.byDefault {
			fault = noInput(r.columns)
		}
		if fault == nil {
			if err := step.set(&s, value{given: given, found: found, cell: r.cells, resolve: resolve}); err != nil {
				fault = problem("%v", err)
				if c, isColumn := from.(column); isColumn {
					fault.Column = c.name
				}
			}
		}
		if fault != nil {
			fault.Field = step.field
			return Sample{}, fault
		}
	}
	metadata, fault := p.readMetadata(r)
	if fault != nil {
		fault.Field = "metadata"
		return Sample{}, fault
	}
	s.Metadata = metadata
	return s, nil
}

// readMetadata gathers the metadata of a row.
func (p *plan) readMetadata(r row) (*orderedjson.Object, *Error) {
	m := p.metadata
	switch {
	case m == nil:
		return readObject(column{name: "metadata", optional: true}, r)
	case m.All:
		return r.columns, nil
	case m.Column != "":
		return readObject(column{name: m.Column}, r)
	}
	gathered := &orderedjson.Object{}
	for _, name := range m.Columns {
		member, _, fault := column{name: name}.read(r.columns)
		if fault != nil {
			return nil, fault
		}
		gathered.Set(name, member)
	}
	for i, named := range m.Named {
		member, found, fault := p.named[i].read(r.columns)
		if fault != nil {
			fault.Problem = named.Name + ": " + fault.Problem
			return nil, fault
		}
		if found {
			gathered.Set(named.Name, member)
		}
	}
	return gathered, nil
}

// readObject reads a column that holds an object or the JSON text of one.
func readObject(from column, r row) (*orderedjson.Object, *Error) {
	given, found, fault := from.read(r.columns)
	if fault != nil {
		return nil, fault
	}
	object, err := objectOf(value{given: given, found: found, cell: r.cells})
	if err != nil {
		return nil, &Error{Column: from.name, Problem: fmt.Sprintf("%v", err)}
	}
	return object, nil
}
