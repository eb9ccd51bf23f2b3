package offload

import (
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/evalfleet/evalfleet/pkg/resource"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// naming are the fields of requests that name their project, and those that lead to such a field.
var naming, leading = []protoreflect.Name{"parent", "name", "sandbox", "run", "project"}, []protoreflect.Name{"request", "register"}

// Project returns a function that finds the project of a request, by the first of its names. A worker without one
// belongs to the default project.
func Project(request proto.Message) func() (string, error) {
	return func() (string, error) { return projectOf(request.ProtoReflect()) }
}

func projectOf(m protoreflect.Message) (string, error) {
	fields := m.Descriptor().Fields()
	for _, name := range naming {
		f := fields.ByName(name)
		if f == nil || f.Kind() != protoreflect.StringKind || f.IsList() {
			continue
		}
		text := m.Get(f).String()
		if name == "project" && text == "" {
			text = resource.Project("default")
		}
		parts := strings.SplitN(text, "/", 3)
		if len(parts) < 2 {
			return "", rpcerr.InvalidField(string(name), "%q names no project", text)
		}
		return resource.ParseProject(string(name), parts[0]+"/"+parts[1])
	}
	for _, name := range leading {
		if f := fields.ByName(name); f != nil && f.Message() != nil && m.Has(f) {
			return projectOf(m.Get(f).Message())
		}
	}
	return "", rpcerr.Internal("a %s says not which project it is in", m.Descriptor().FullName())
}
