package openaicompat

import (
	"github.com/evalfleet/evalfleet/pkg/json/orderedjson"
)

// extended are keywords of JSON Schema that many servers refuse in a tool's parameters.
var extended = []string{"pattern", "minLength", "maxLength", "minimum", "maximum", "examples"}

// withoutExtendedKeywords returns a schema without them. A schema that has none, or is no object, is returned byte for
// byte.
func withoutExtendedKeywords(schema string) string {
	object, err := orderedjson.DecodeObject([]byte(schema))
	if err != nil || !reduce(object) {
		return schema
	}
	return string(orderedjson.Append(nil, object))
}

// reduce removes the keywords from a schema and its nested schemas, and reports whether there were any.
func reduce(schema any) (changed bool) {
	object, ok := schema.(*orderedjson.Object)
	if !ok {
		return false
	}
	for _, keyword := range extended {
		if _, there := object.Get(keyword); there {
			object.Delete(keyword)
			changed = true
		}
	}
	for _, keyword := range []string{"items", "additionalProperties"} {
		if inner, there := object.Get(keyword); there {
			changed = reduce(inner) || changed
		}
	}
	if properties, there := object.Get("properties"); there {
		if named, isObject := properties.(*orderedjson.Object); isObject {
			for _, inner := range named.All() {
				changed = reduce(inner) || changed
			}
		}
	}
	if choices, there := object.Get("anyOf"); there {
		list, _ := choices.([]any)
		for _, inner := range list {
			changed = reduce(inner) || changed
		}
	}
	return changed
}
