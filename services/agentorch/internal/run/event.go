package run

import (
	"fmt"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
)

// NewEvent wraps a message in an event of its kind. It panics if the message is not a kind of event.
func NewEvent(kind proto.Message) *agentv1.Event {
	e := &agentv1.Event{}
	m := kind.ProtoReflect()
	field := kinds[m.Descriptor().FullName()]
	if field == nil {
		panic(fmt.Sprintf("%s is no kind of event", m.Descriptor().FullName()))
	}
	e.ProtoReflect().Set(field, protoreflect.ValueOfMessage(m))
	return e
}

// kinds are the fields of the kinds of events, by the name of their message.
var kinds = func() map[protoreflect.FullName]protoreflect.FieldDescriptor {
	fields := (&agentv1.Event{}).ProtoReflect().Descriptor().Oneofs().ByName("kind").Fields()
	all := make(map[protoreflect.FullName]protoreflect.FieldDescriptor, fields.Len())
	for i := range fields.Len() {
		all[fields.Get(i).Message().FullName()] = fields.Get(i)
	}
	return all
}()
