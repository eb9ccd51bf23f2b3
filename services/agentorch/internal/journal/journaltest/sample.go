package journaltest

import (
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
)

// Samples returns an event of every kind, with every field of it set, messages within messages to a depth of six. Texts
// of contents are longer with size.
func Samples(size int) []*agentv1.Event {
	kinds := (&agentv1.Event{}).ProtoReflect().Descriptor().Oneofs().ByName("kind").Fields()
	var events []*agentv1.Event
	for i := range kinds.Len() {
		event := &agentv1.Event{}
		m := event.ProtoReflect()
		f := filler{text: strings.Repeat("x", size)}
		fields := m.Descriptor().Fields()
		for j := range fields.Len() {
			if field := fields.Get(j); field.ContainingOneof() == nil && field.Name() != "journal" && field.Name() != "seq" && field.Name() != "epoch" {
				f.set(m, field, 5)
			}
		}
		f.set(m, kinds.Get(i), 6)
		events = append(events, event)
	}
	return events
}

// filler sets fields to values that differ from the default.
type filler struct{ text string }

func (f filler) fill(m protoreflect.Message, depth int) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		field := fields.Get(i)
		if in := field.ContainingOneof(); in != nil && !in.IsSynthetic() && m.WhichOneof(in) != nil {
			continue
		}
		f.set(m, field, depth-1)
	}
}

func (f filler) set(m protoreflect.Message, field protoreflect.FieldDescriptor, depth int) {
	if field.Message() != nil && depth <= 0 {
		return
	}
	switch {
	case field.IsMap():
		entries := m.Mutable(field).Map()
		value := entries.NewValue()
		if field.MapValue().Message() != nil {
			f.fill(value.Message(), depth)
		} else {
			value = f.scalar(field.MapValue())
		}
		entries.Set(f.scalar(field.MapKey()).MapKey(), value)
	case field.IsList():
		list := m.Mutable(field).List()
		if field.Message() != nil {
			f.fill(list.AppendMutable().Message(), depth)
		} else {
			list.Append(f.scalar(field))
		}
	case field.Message() != nil:
		f.fill(m.Mutable(field).Message(), depth)
	default:
		m.Set(field, f.scalar(field))
	}
}

func (f filler) scalar(field protoreflect.FieldDescriptor) protoreflect.Value {
	switch field.Kind() {
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(true)
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(field.Enum().Values().Get(field.Enum().Values().Len() - 1).Number())
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind:
		return protoreflect.ValueOfInt32(7)
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		return protoreflect.ValueOfUint32(7)
	case protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind:
		return protoreflect.ValueOfInt64(7)
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return protoreflect.ValueOfUint64(7)
	case protoreflect.FloatKind:
		return protoreflect.ValueOfFloat32(7)
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64(7)
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte(string(field.Name()) + f.text))
	default:
		name := string(field.Name())
		if strings.HasSuffix(name, "_json") || strings.HasPrefix(name, "json_") {
			return protoreflect.ValueOfString(`{"` + name + `":"` + f.text + `"}`)
		}
		return protoreflect.ValueOfString(name + f.text)
	}
}
