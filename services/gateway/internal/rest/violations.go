package rest

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// violations notes the unknown fields, unknown enum values and wrong shapes of a JSON value, which is at path in a
// request and should be a d.
func violations(wrong *rpcerr.Fields, path string, value any, d protoreflect.MessageDescriptor) {
	if value == nil || d.ParentFile().Package() == "google.protobuf" { // Those have a JSON of their own.
		return
	}
	object, ok := value.(map[string]any)
	if !ok {
		wrong.Add(path, "should be an object of "+string(d.FullName()))
		return
	}
	for _, key := range slices.Sorted(maps.Keys(object)) {
		at := strings.TrimPrefix(path+"."+key, ".")
		switch f := field(d, key); {
		case f != nil:
			ofField(wrong, at, object[key], f)
		case wrong.Full():
			wrong.Add(at, "")
		default:
			wrong.Add(at, "unknown field; known: "+strings.Join(fieldNames(d), ", "))
		}
	}
}

// ofField notes the violations of a field's value: of each of its elements, where it has several.
func ofField(wrong *rpcerr.Fields, path string, value any, f protoreflect.FieldDescriptor) {
	switch {
	case f.IsMap():
		entries, _ := value.(map[string]any)
		for _, key := range slices.Sorted(maps.Keys(entries)) {
			ofOne(wrong, path+"."+key, entries[key], f.MapValue())
		}
	case f.IsList():
		elements, ok := value.([]any)
		if !ok && value != nil {
			wrong.Add(path, "should be a list")
			return
		}
		for i, element := range elements {
			ofOne(wrong, fmt.Sprintf("%s[%d]", path, i), element, f)
		}
	default:
		ofOne(wrong, path, value, f)
	}
}

func ofOne(wrong *rpcerr.Fields, path string, value any, f protoreflect.FieldDescriptor) {
	if value == nil {
		return
	}
	if wanted := misfits(value, f); wanted != "" {
		wrong.Add(path, wanted)
	} else if f.Message() != nil {
		violations(wrong, path, value, f.Message())
	}
}

// field finds a field by its name in JSON or in proto; nil where there is none.
func field(d protoreflect.MessageDescriptor, name string) protoreflect.FieldDescriptor {
	if f := d.Fields().ByJSONName(name); f != nil {
		return f
	}
	return d.Fields().ByTextName(name)
}

func fieldNames(d protoreflect.MessageDescriptor) []string {
	var names []string
	for i := range d.Fields().Len() {
		names = append(names, d.Fields().Get(i).JSONName())
	}
	return names
}
