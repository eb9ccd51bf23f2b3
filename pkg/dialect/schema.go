package dialect

import (
	"strings"

	"github.com/evalfleet/evalfleet/pkg/json/orderedjson"
)

// EditSchema returns a JSON Schema after edit was applied to it and to the schemas within it, outer ones first. edit
// reports whether it has changed its schema. A schema in which nothing was changed, or that is no object, is returned
// byte for byte.
func EditSchema(schema string, edit func(*orderedjson.Object) (changed bool)) string {
	object, err := orderedjson.DecodeObject([]byte(schema))
	if err != nil || !editSchema(object, edit) {
		return schema
	}
	return string(orderedjson.Append(nil, object))
}

// bounds are keywords that narrow values, which many servers refuse.
var bounds = []string{"pattern", "minLength", "maxLength", "minimum", "maximum", "examples"}

// DropBounds is an edit for EditSchema: it deletes the keywords that bound texts and numbers, and examples.
func DropBounds(schema *orderedjson.Object) (changed bool) {
	for _, keyword := range bounds {
		if _, there := schema.Get(keyword); there {
			schema.Delete(keyword)
			changed = true
		}
	}
	return changed
}

// editSchema edits a value that is a schema if it is an object.
func editSchema(schema any, edit func(*orderedjson.Object) bool) bool {
	object, ok := schema.(*orderedjson.Object)
	if !ok {
		return false
	}
	changed := edit(object)
	for _, keyword := range []string{"items", "additionalProperties"} {
		inner, _ := object.Get(keyword)
		changed = editSchema(inner, edit) || changed
	}
	for _, keyword := range []string{"properties", "$defs", "definitions"} {
		named, _ := object.Get(keyword)
		if members, isObject := named.(*orderedjson.Object); isObject {
			for _, inner := range members.All() {
				changed = editSchema(inner, edit) || changed
			}
		}
	}
	for _, keyword := range []string{"anyOf", "allOf", "oneOf", "prefixItems"} {
		list, _ := object.Get(keyword)
		if choices, isList := list.([]any); isList {
			for _, inner := range choices {
				changed = editSchema(inner, edit) || changed
			}
		}
	}
	return changed
}

// valueMembers are the members of a schema that hold values, in which no name is the schema's, and namedMembers those
// that hold schemas by names of the client's.
var (
	valueMembers = map[string]bool{"const": true, "default": true, "enum": true, "example": true, "examples": true}
	namedMembers = map[string]bool{"properties": true, "patternProperties": true, "dependentSchemas": true, "defs": true, "$defs": true, "definitions": true}
)

// LowerTypes returns a schema in the form of OpenAPI, which has its types in capitals, with types in lower case. One
// without capitals is returned byte for byte.
func LowerTypes(schema string) string {
	value, err := orderedjson.Decode([]byte(schema))
	if err != nil || !lowerTypes(value) {
		return schema
	}
	return string(orderedjson.Append(nil, value))
}

// lowerTypes puts the types in a schema into lower case. It reports whether it has changed any.
func lowerTypes(schema any) (changed bool) {
	switch v := schema.(type) {
	case []any:
		for _, item := range v {
			changed = lowerTypes(item) || changed
		}
	case *orderedjson.Object:
		if text, ok := v.Get("type"); ok {
			if kind, isText := text.(string); isText && kind != strings.ToLower(kind) {
				v.Set("type", strings.ToLower(kind))
				changed = true
			}
		}
		for name, member := range v.All() {
			schemas, isObject := member.(*orderedjson.Object)
			switch {
			case valueMembers[name]:
			case namedMembers[name] && isObject:
				for _, schema := range schemas.All() {
					changed = lowerTypes(schema) || changed
				}
			default:
				changed = lowerTypes(member) || changed
			}
		}
	}
	return changed
}
