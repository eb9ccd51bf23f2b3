// Package toolschema removes keywords from the schemas of tools, for APIs that refuse or do not know them.
package toolschema

import (
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/json/orderedjson"
)

// Without returns copies of tools whose schemas lack keywords, also within the schemas of items and properties. A schema
// that has none of them, or is no object, stays byte for byte.
func Without(tools []*toolv1.ToolInfo, keywords ...string) []*toolv1.ToolInfo {
	all := make([]*toolv1.ToolInfo, len(tools))
	for i, tool := range tools {
		all[i] = &toolv1.ToolInfo{
			Name: tool.GetName(), Description: tool.GetDescription(), OptionsJson: tool.GetOptionsJson(), ParametersJson: without(tool.GetParametersJson(), keywords),
		}
	}
	return all
}

// without returns a schema without the keywords.
func without(schema string, keywords []string) string {
	object, err := orderedjson.DecodeObject([]byte(schema))
	if err != nil || !reduce(object, keywords) {
		return schema
	}
	return string(orderedjson.Append(nil, object))
}

// reduce removes the keywords from a schema and its nested schemas, and reports whether there were any.
func reduce(schema any, keywords []string) (changed bool) {
	object, ok := schema.(*orderedjson.Object)
	if !ok {
		return false
	}
	for _, keyword := range keywords {
		if _, there := object.Get(keyword); there {
			object.Delete(keyword)
			changed = true
		}
	}
	for _, keyword := range []string{"items", "additionalProperties"} {
		if inner, there := object.Get(keyword); there {
			changed = reduce(inner, keywords) || changed
		}
	}
	if properties, there := object.Get("properties"); there {
		if named, isObject := properties.(*orderedjson.Object); isObject {
			for _, inner := range named.All() {
				changed = reduce(inner, keywords) || changed
			}
		}
	}
	if choices, there := object.Get("anyOf"); there {
		list, _ := choices.([]any)
		for _, inner := range list {
			changed = reduce(inner, keywords) || changed
		}
	}
	return changed
}
