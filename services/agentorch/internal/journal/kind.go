package journal

import (
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	optionsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/options/v1"
)

// Critical reports whether a replica must know the event's kind to own the journal. All kinds are critical except
// notes.
func Critical(e *agentv1.Event) bool {
	kind := kindField(e.ProtoReflect())
	return kind != nil && role(kind) != optionsv1.EventRole_EVENT_ROLE_NOTE
}

// Intent reports whether an event announces an effect of another service.
func Intent(e *agentv1.Event) bool {
	kind := kindField(e.ProtoReflect())
	return kind != nil && role(kind) == optionsv1.EventRole_EVENT_ROLE_INTENT
}

// RequestID returns the key of the request for the effect that an intent begins; empty for other events.
func RequestID(e *agentv1.Event) string {
	if !Intent(e) {
		return ""
	}
	return member(e, "request_id").String()
}

// ClientKey returns the client's key of an intent that was requested from outside; empty for other events.
func ClientKey(e *agentv1.Event) string {
	switch k := e.GetKind().(type) {
	case *agentv1.Event_ModelIntent:
		return k.ModelIntent.GetClientKey()
	case *agentv1.Event_ExecIntent:
		return k.ExecIntent.GetClientKey()
	case *agentv1.Event_ToolIntent:
		return k.ToolIntent.GetClientKey()
	}
	return ""
}

// IntentOf returns the number of the intent that an outcome ends; 0 for other events, and for an outcome of an effect
// that never began.
func IntentOf(e *agentv1.Event) int64 {
	kind := kindField(e.ProtoReflect())
	if kind == nil || role(kind) != optionsv1.EventRole_EVENT_ROLE_OUTCOME {
		return 0
	}
	return member(e, "intent").Int()
}

// role returns the protocol's role of a kind of event.
func role(kind protoreflect.FieldDescriptor) optionsv1.EventRole {
	r, _ := proto.GetExtension(kind.Options(), optionsv1.E_Role).(optionsv1.EventRole)
	return r
}

// member is the value of a field of the event's kind, which has it by its role.
func member(e *agentv1.Event, name protoreflect.Name) protoreflect.Value {
	m := e.ProtoReflect()
	kind := m.Get(kindField(m)).Message()
	return kind.Get(kind.Descriptor().Fields().ByName(name))
}
