package dialect

import "github.com/evalfleet/evalfleet/pkg/json/orderedjson"

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
