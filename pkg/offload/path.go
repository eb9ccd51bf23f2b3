package offload

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/evalfleet/evalfleet/pkg/blob"
	optionsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/options/v1"
)

// path leads from a message to a value within it.
type path []step

// step leads from a message to one of its fields, or to an item of it.
type step struct {
	field protoreflect.FieldDescriptor
	index int                 // of a list
	key   protoreflect.MapKey // of a map
}

// String writes a path as messages have it, such as `output.choices[0].message.content.text`.
func (p path) String() string {
	var b strings.Builder
	for i, s := range p {
		if i > 0 {
			b.WriteByte('.')
		}
		b.WriteString(string(s.field.Name()))
		switch {
		case s.field.IsList():
			fmt.Fprintf(&b, "[%d]", s.index)
		case s.field.IsMap():
			fmt.Fprintf(&b, "[%q]", s.key.String())
		}
	}
	return b.String()
}

// isPlain reports whether a path leads to a text that is no content, such as a name.
func (p path) isPlain() bool {
	is, _ := proto.GetExtension(p[len(p)-1].field.Options(), optionsv1.E_Plain).(bool)
	return is
}

// parse parses a path from a message of a type to a text or bytes. Its errors continue a sentence that begins with the
// path.
func parse(d protoreflect.MessageDescriptor, text string) (path, error) {
	var p path
	for {
		end := strings.IndexAny(text, ".[")
		if end < 0 {
			end = len(text)
		}
		name := text[:end]
		field := d.Fields().ByName(protoreflect.Name(name))
		if field == nil {
			return nil, fmt.Errorf("is no path: %s has no field %q", d.Name(), name)
		}
		s := step{field: field}
		text = text[end:]
		if field.IsList() || field.IsMap() {
			rest, err := s.item(text)
			if err != nil {
				return nil, fmt.Errorf("is no path: after %q %w", name, err)
			}
			text = rest
		}
		p = append(p, s)
		switch of := s.of(); {
		case text == "" && holds(of):
			return p, nil
		case text == "":
			return nil, fmt.Errorf("is no path to a text or bytes")
		case of.Message() == nil || text[0] != '.':
			return nil, fmt.Errorf("is no path: nothing is below %q", name)
		default:
			d, text = of.Message(), text[1:]
		}
	}
}

// item reads which item is meant, in brackets, and returns the rest of the text.
func (s *step) item(text string) (rest string, err error) {
	inner, ok := strings.CutPrefix(text, "[")
	if !ok {
		return "", errors.New("the place in brackets is missing")
	}
	quoted, err := strconv.QuotedPrefix(inner)
	if err == nil && s.field.IsMap() && s.field.MapKey().Kind() == protoreflect.StringKind {
		key, err := strconv.Unquote(quoted)
		if err != nil {
			return "", err
		}
		s.key = protoreflect.ValueOfString(key).MapKey()
		rest, ok = strings.CutPrefix(inner[len(quoted):], "]")
	} else {
		var digits string
		digits, rest, ok = strings.Cut(inner, "]")
		s.index, err = strconv.Atoi(digits)
		if err != nil || s.index < 0 || s.field.IsMap() {
			return "", errors.New("no place of the field is named")
		}
	}
	if !ok {
		return "", errors.New("the bracket is not closed")
	}
	return rest, nil
}

// of is the field, or the value field of the map.
func (s step) of() protoreflect.FieldDescriptor {
	if s.field.IsMap() {
		return s.field.MapValue()
	}
	return s.field
}

func (s step) kind() protoreflect.Kind { return s.of().Kind() }

func (s step) isItem() bool { return s.field.IsList() || s.field.IsMap() }

// has reports whether the step leads to something in m.
func (s step) has(m protoreflect.Message) bool {
	switch {
	case s.field.IsList():
		return s.index < m.Get(s.field).List().Len()
	case s.field.IsMap():
		return m.Get(s.field).Map().Has(s.key)
	}
	return m.Has(s.field)
}

func (s step) get(m protoreflect.Message) protoreflect.Value {
	switch {
	case s.field.IsList():
		return m.Get(s.field).List().Get(s.index)
	case s.field.IsMap():
		return m.Get(s.field).Map().Get(s.key)
	}
	return m.Get(s.field)
}

// mutable returns the message to which the step leads.
func (s step) mutable(m protoreflect.Message) protoreflect.Message {
	switch {
	case s.field.IsList():
		return m.Mutable(s.field).List().Get(s.index).Message()
	case s.field.IsMap():
		return m.Mutable(s.field).Map().Mutable(s.key).Message()
	}
	return m.Mutable(s.field).Message()
}

func (s step) set(m protoreflect.Message, v protoreflect.Value) {
	switch {
	case s.field.IsList():
		m.Mutable(s.field).List().Set(s.index, v)
	case s.field.IsMap():
		m.Mutable(s.field).Map().Set(s.key, v)
	default:
		m.Set(s.field, v)
	}
}

// messageType is the cached description of a message type.
type messageType struct {
	// list is the field with the references; nil for a type that has none.
	list protoreflect.FieldDescriptor
	// lead are, if there is no list, the fields that lead to a message that has one.
	lead []protoreflect.FieldDescriptor
}

// rangeOf ranges over the populated fields of m that lead to values, as [protoreflect.Message.Range] does over all.
func (t messageType) rangeOf(m protoreflect.Message) func(func(protoreflect.FieldDescriptor, protoreflect.Value) bool) {
	return func(each func(protoreflect.FieldDescriptor, protoreflect.Value) bool) {
		for _, f := range t.lead {
			if m.Has(f) && !each(f, m.Get(f)) {
				return
			}
		}
	}
}

var types sync.Map // protoreflect.MessageDescriptor → messageType

func typeOf(d protoreflect.MessageDescriptor) messageType {
	if known, ok := types.Load(d); ok {
		return known.(messageType) //nolint:forcetypeassert // nothing else is stored
	}
	t := find(d, nil)
	types.Store(d, t)
	return t
}

// find computes the result of typeOf. Above are the types on the path to this one, which are not followed again.
func find(d protoreflect.MessageDescriptor, above []protoreflect.MessageDescriptor) (t messageType) {
	if f := d.Fields().ByName("offloaded"); f != nil && f.IsList() && f.Message() != nil {
		return messageType{list: f}
	}
	for _, a := range above {
		if a == d {
			return t
		}
	}
	for i := range d.Fields().Len() {
		f := d.Fields().Get(i)
		if f.Message() == nil || f.IsMap() {
			continue
		}
		if below := find(f.Message(), append(above, d)); below.list != nil || len(below.lead) > 0 {
			t.lead = append(t.lead, f)
		}
	}
	return t
}

// refer appends a reference to a list: of evalfleet.content.v1.OffloadedField, or of the worker protocol's equivalent
// type, since a worker needs only the one file of its protocol.
func refer(list protoreflect.List, field string, to blob.Ref) {
	ref := list.AppendMutable().Message()
	fields := ref.Descriptor().Fields()
	ref.Set(fields.ByName("field"), protoreflect.ValueOfString(field))
	body := ref.Mutable(fields.ByName("blob")).Message()
	fields = body.Descriptor().Fields()
	body.Set(fields.ByName("hash"), protoreflect.ValueOfString(to.Hash))
	body.Set(fields.ByName("size"), protoreflect.ValueOfInt64(to.Size))
	body.Set(fields.ByName("media_type"), protoreflect.ValueOfString(to.MediaType))
}

// referred reads a reference.
func referred(ref protoreflect.Message) (field, hash string) {
	fields := ref.Descriptor().Fields()
	body := ref.Get(fields.ByName("blob")).Message()
	return ref.Get(fields.ByName("field")).String(), body.Get(body.Descriptor().Fields().ByName("hash")).String()
}
