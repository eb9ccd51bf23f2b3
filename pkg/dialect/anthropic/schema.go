package anthropic

import "github.com/evalfleet/evalfleet/pkg/json/orderedjson"

// closed returns a schema that allows only named members, at all levels, as the format requires of an answer's schema,
// and without the bounds of numbers and texts, which the server refuses. A value that is no object is returned
// unchanged.
func closed(schema string) string {
	object, err := orderedjson.DecodeObject([]byte(schema))
	if err != nil {
		return schema
	}
	closeSchema(object)
	return string(orderedjson.Append(nil, object))
}

// bounds are the keywords that the server does not accept in a schema of answers:
// https://platform.claude.com/docs/en/build-with-claude/structured-outputs.
var bounds = []string{"minimum", "maximum", "minLength", "maxLength", "pattern", "examples"}

func closeSchema(schema any) {
	object, ok := schema.(*orderedjson.Object)
	if !ok {
		return
	}
	for _, keyword := range bounds {
		object.Delete(keyword)
	}
	object.Set("additionalProperties", false)
	if items, there := object.Get("items"); there {
		closeSchema(items)
	}
	for _, keyword := range []string{"properties", "$defs", "definitions"} {
		named, _ := object.Get(keyword)
		if members, isObject := named.(*orderedjson.Object); isObject {
			for _, inner := range members.All() {
				closeSchema(inner)
			}
		}
	}
	for _, keyword := range []string{"anyOf", "allOf", "oneOf", "prefixItems"} {
		list, _ := object.Get(keyword)
		if choices, isList := list.([]any); isList {
			for _, inner := range choices {
				closeSchema(inner)
			}
		}
	}
}
