package anthropic

import (
	"slices"

	"github.com/evalfleet/evalfleet/pkg/orderedjson"
)

// closed returns a schema whose objects have no members but those that are named, here and in all schemas within, as the format asks of a schema of answers.
// What is no schema is returned as it is.
func closed(schema string) string {
	object, err := orderedjson.DecodeObject([]byte(schema))
	if err != nil {
		return schema
	}
	closeSchema(object)
	return string(orderedjson.Append(nil, object))
}

func closeSchema(schema any) {
	object, ok := schema.(*orderedjson.Object)
	if !ok {
		return
	}
	if ofObjects(object) {
		object.Set("additionalProperties", false)
	}
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

// ofObjects says whether a schema describes objects: by its type, or by naming their members.
func ofObjects(schema *orderedjson.Object) bool {
	const object = "object"
	switch kind, _ := schema.Get("type"); kind := kind.(type) {
	case string:
		return kind == object
	case []any:
		return slices.Contains(kind, any(object))
	default:
		_, named := schema.Get("properties")
		return named
	}
}
