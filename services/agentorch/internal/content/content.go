// Package content takes what was said and shown out of messages of the protocol, for viewers who may see what happened but not what it was about.
//
// The protocol's rule is one name: content stands in fields called `content`, at any depth. A few fields that hold content under another name are listed here.
package content

import (
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// elsewhere are fields that hold content under another name.
var elsewhere = map[protoreflect.FullName]bool{
	"evalfleet.agent.v1.AgentRef.params_json":          true, // prompts
	"evalfleet.agent.v1.Dataset.inline":                true,
	"evalfleet.agent.v1.EvalCreated.dataset":           true,
	"evalfleet.agent.v1.Event.delta":                   true,
	"evalfleet.agent.v1.InputRequested.fields_json":    true, // questions
	"evalfleet.agent.v1.OutputSet.completion":          true,
	"evalfleet.agent.v1.RunSpec.choices":               true,
	"evalfleet.agent.v1.RunSpec.input":                 true,
	"evalfleet.agent.v1.RunSpec.metadata_json":         true,
	"evalfleet.agent.v1.RunSpec.prompt":                true,
	"evalfleet.agent.v1.RunSpec.store":                 true,
	"evalfleet.agent.v1.RunSpec.target":                true,
	"evalfleet.agent.v1.ScorerRef.params_json":         true, // check programs
	"evalfleet.model.v1.GenerateConfig.system_message": true,
	"evalfleet.sandbox.v1.SandboxSpec.env":             true,
	"evalfleet.sandbox.v1.SandboxSpec.setup":           true,
}

// Strip clears every field of content in m, which it changes.
func Strip(m proto.Message) { strip(m.ProtoReflect()) }

func strip(m protoreflect.Message) {
	m.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		switch {
		case Field(field):
			m.Clear(field)
		case field.Message() == nil:
		case field.IsMap():
			if field.MapValue().Message() != nil {
				value.Map().Range(func(_ protoreflect.MapKey, entry protoreflect.Value) bool {
					strip(entry.Message())
					return true
				})
			}
		case field.IsList():
			for i := range value.List().Len() {
				strip(value.List().Get(i).Message())
			}
		default:
			strip(value.Message())
		}
		return true
	})
}

// Field reports whether a field holds content.
func Field(field protoreflect.FieldDescriptor) bool {
	return field.Name() == "content" || elsewhere[field.FullName()]
}
