// Package redact removes content that users, models and tools wrote from messages of the protocol, for viewers who may
// see what happened but not the content. The protocol marks such fields with the option evalfleet.options.v1.content;
// this package does not know them by name.
package redact

import (
	"sync"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	optionsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/options/v1"
)

// Content returns a copy of m without content. It also drops unknown fields, since they may be content. The copy shares
// values with m, so neither may be changed afterwards.
func Content[M proto.Message](m M) M {
	from := m.ProtoReflect()
	if !from.IsValid() {
		return m
	}
	bare, _ := removeContent(from).Interface().(M) // it is made of the same type
	return bare
}

func removeContent(m protoreflect.Message) protoreflect.Message {
	if plain(m.Descriptor()) && len(m.GetUnknown()) == 0 {
		return m
	}
	bare := m.New()
	m.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		switch {
		case IsContent(field):
		case field.IsMap() && field.MapValue().Message() != nil:
			entries := bare.NewField(field).Map()
			value.Map().Range(func(key protoreflect.MapKey, entry protoreflect.Value) bool {
				entries.Set(key, protoreflect.ValueOfMessage(removeContent(entry.Message())))
				return true
			})
			bare.Set(field, protoreflect.ValueOfMap(entries))
		case field.Message() == nil || field.IsMap():
			bare.Set(field, value)
		case field.IsList():
			items := bare.NewField(field).List()
			for i := range value.List().Len() {
				items.Append(protoreflect.ValueOfMessage(removeContent(value.List().Get(i).Message())))
			}
			bare.Set(field, protoreflect.ValueOfList(items))
		default:
			bare.Set(field, protoreflect.ValueOfMessage(removeContent(value.Message())))
		}
		return true
	})
	return bare
}

// IsContent reports whether a field holds content.
func IsContent(field protoreflect.FieldDescriptor) bool {
	if known, ok := fields.Load(field); ok {
		return known.(bool) //nolint:forcetypeassert // nothing else is stored
	}
	is, _ := proto.GetExtension(field.Options(), optionsv1.E_Content).(bool)
	fields.Store(field, is)
	return is
}

// plain reports whether messages of a type hold neither content nor other messages, as times and counts do.
func plain(message protoreflect.MessageDescriptor) bool {
	if known, ok := plains.Load(message); ok {
		return known.(bool) //nolint:forcetypeassert // nothing else is stored
	}
	is := true
	for i := range message.Fields().Len() {
		field := message.Fields().Get(i)
		is = is && !IsContent(field) && field.Message() == nil
	}
	plains.Store(message, is)
	return is
}

// plains caches facts about types.
var plains sync.Map // protoreflect.MessageDescriptor → bool

// fields caches facts about fields: reading an option is the slowest part of the work on a field.
var fields sync.Map // protoreflect.FieldDescriptor → bool
