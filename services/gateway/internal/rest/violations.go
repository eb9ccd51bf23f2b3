package rest

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/evalfleet/evalfleet/pkg/bound"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/suggest"
)

// violations records the unknown fields, unknown enum values and wrong shapes of a JSON value, which is at path in a
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
	set := map[protoreflect.FullName]string{} // What is set already, and by which name: a field, or one of a oneof.
	for _, key := range slices.Sorted(maps.Keys(object)) {
		at := strings.TrimPrefix(below(path, "."+key), ".")
		switch f := field(d, key); {
		case f != nil:
			if other := set[slot(f)]; other != "" && object[key] != nil {
				wrong.Add(at, "cannot be set beside "+other+"; set one of them")
				continue
			}
			if object[key] != nil {
				set[slot(f)] = key
			}
			ofField(wrong, at, object[key], f)
		case wrong.Full():
			wrong.Add(at, "")
		default:
			wrong.Add(at, "unknown field; "+suggest.Known(fieldNames(d)))
		}
	}
}

// below is the path of what is one step below another. A path from which an error would cut the step is returned
// itself: a client chooses the keys of maps, and how many values are below one.
func below(path, step string) string {
	if len(path) > 2*bound.FieldPathBytes {
		return path
	}
	return path + step
}

// slot is what a field sets: its oneof, of which one field can be set, or itself.
func slot(f protoreflect.FieldDescriptor) protoreflect.FullName {
	if o := f.ContainingOneof(); o != nil {
		return o.FullName()
	}
	return f.FullName()
}

// ofField notes the violations of a field's value: of each of its elements, where it has several.
func ofField(wrong *rpcerr.Fields, path string, value any, f protoreflect.FieldDescriptor) {
	switch {
	case f.IsMap():
		entries, ok := value.(map[string]any)
		if !ok && value != nil {
			wrong.Add(path, "should be an object")
			return
		}
		for _, key := range slices.Sorted(maps.Keys(entries)) {
			ofElement(wrong, below(path, "."+key), entries[key], f.MapValue())
		}
	case f.IsList():
		elements, ok := value.([]any)
		if !ok && value != nil {
			wrong.Add(path, "should be a list")
			return
		}
		for i, element := range elements {
			ofElement(wrong, below(path, fmt.Sprintf("[%d]", i)), element, f)
		}
	default:
		ofOne(wrong, path, value, f)
	}
}

// ofElement notes the violations of an element of a list or of a map, which cannot be null.
func ofElement(wrong *rpcerr.Fields, path string, value any, f protoreflect.FieldDescriptor) {
	if value == nil && (f.Message() == nil || f.Message().FullName() != "google.protobuf.Value") {
		wrong.Add(path, "cannot be null")
		return
	}
	ofOne(wrong, path, value, f)
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

// field returns the field with a JSON or proto name; nil if there is none.
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
