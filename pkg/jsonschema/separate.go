package jsonschema

import "maps"

// Keywords whose value is a schema, a list of schemas, or a map of schemas. Some take either of the first two.
var (
	schemaKeywords = []string{"additionalItems", "additionalProperties", "contains", "else", "if", "items", "not", "propertyNames", "then", "unevaluatedItems", "unevaluatedProperties"}
	listKeywords   = []string{"allOf", "anyOf", "items", "oneOf", "prefixItems"}
	mapKeywords    = []string{"$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties"}
)

// separate returns a schema that means the same, without `format`, in which `type`, `enum` and `const` are separate
// from each other and from the rest, so that a failure of one does not hide the others: {"type": T, "enum": E, …}
// becomes {…, "allOf": [{"type": T}, {"enum": E}]}.
func separate(schema any) any {
	object, ok := schema.(map[string]any)
	if !ok {
		return schema
	}
	out := maps.Clone(object)
	delete(out, "format")
	for _, keyword := range schemaKeywords {
		if value, ok := out[keyword]; ok {
			out[keyword] = separate(value)
		}
	}
	for _, keyword := range listKeywords {
		if list, ok := out[keyword].([]any); ok {
			out[keyword] = separateAll(list)
		}
	}
	for _, keyword := range mapKeywords {
		if members, ok := out[keyword].(map[string]any); ok {
			separated := make(map[string]any, len(members))
			for name, member := range members {
				separated[name] = separate(member)
			}
			out[keyword] = separated
		}
	}
	return standApart(out)
}

func separateAll(schemas []any) []any {
	out := make([]any, len(schemas))
	for i, schema := range schemas {
		out[i] = separate(schema)
	}
	return out
}

// standApart moves the assertions that end a check early into `allOf`. Alone, they have nothing to hide.
func standApart(schema map[string]any) map[string]any {
	all, ok := schema["allOf"].([]any)
	if _, present := schema["allOf"]; (present && !ok) || len(schema) == 1 {
		return schema
	}
	for _, keyword := range []string{"type", "enum", "const"} {
		if value, ok := schema[keyword]; ok {
			all = append(all, map[string]any{keyword: value})
			delete(schema, keyword)
		}
	}
	if len(all) > 0 {
		schema["allOf"] = all
	}
	return schema
}
