package rest

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// violations are the unknown fields, unknown enum values and wrong shapes of a JSON value, which stands at path of a request and should be a d.
func violations(path string, value any, d protoreflect.MessageDescriptor) []rpcerr.Field {
	if value == nil || d.ParentFile().Package() == "google.protobuf" { // Those have a JSON of their own.
		return nil
	}
	object, ok := value.(map[string]any)
	if !ok {
		return []rpcerr.Field{{Path: path, Description: "should be an object of " + string(d.FullName())}}
	}
	var all []rpcerr.Field
	for _, key := range slices.Sorted(maps.Keys(object)) {
		at := strings.TrimPrefix(path+"."+key, ".")
		f := field(d, key)
		if f == nil {
			all = append(all, rpcerr.Field{Path: at, Description: "unknown field; known: " + strings.Join(fieldNames(d), ", ")})
			continue
		}
		all = append(all, ofField(at, object[key], f)...)
	}
	return all
}

// ofField are the violations of a field's value: of each of its elements, where it has several.
func ofField(path string, value any, f protoreflect.FieldDescriptor) []rpcerr.Field {
	var all []rpcerr.Field
	switch {
	case f.IsMap():
		entries, _ := value.(map[string]any)
		for _, key := range slices.Sorted(maps.Keys(entries)) {
			all = append(all, ofOne(path+"."+key, entries[key], f.MapValue())...)
		}
	case f.IsList():
		elements, ok := value.([]any)
		if !ok && value != nil {
			return []rpcerr.Field{{Path: path, Description: "should be a list"}}
		}
		for i, element := range elements {
			all = append(all, ofOne(fmt.Sprintf("%s[%d]", path, i), element, f)...)
		}
	default:
		all = ofOne(path, value, f)
	}
	return all
}

func ofOne(path string, value any, f protoreflect.FieldDescriptor) []rpcerr.Field {
	if f.Message() != nil {
		return violations(path, value, f.Message())
	}
	name, isText := value.(string)
	if f.Enum() == nil || !isText || f.Enum().Values().ByName(protoreflect.Name(name)) != nil {
		return nil
	}
	var known []string
	for i := range f.Enum().Values().Len() {
		known = append(known, string(f.Enum().Values().Get(i).Name()))
	}
	return []rpcerr.Field{{Path: path, Description: fmt.Sprintf("unknown value %q; known: %s", name, strings.Join(known, ", "))}}
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
