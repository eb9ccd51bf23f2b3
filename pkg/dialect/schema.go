package dialect

import (
	"encoding/json"
	"slices"
	"strconv"
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

// FromOpenAPI returns a schema in Google's form of OpenAPI as a JSON Schema: its types are in capitals there, a value
// that may be null is `nullable`, whole numbers may be texts, and properties have an order. One without any of these is
// returned byte for byte.
func FromOpenAPI(schema string) string {
	value, err := orderedjson.Decode([]byte(schema))
	if err != nil || !fromOpenAPI(value) {
		return schema
	}
	return string(orderedjson.Append(nil, value))
}

// fromOpenAPI makes a schema, or a list of them, a JSON Schema. It reports whether it has changed anything.
func fromOpenAPI(schema any) (changed bool) {
	switch v := schema.(type) {
	case []any:
		for _, item := range v {
			changed = fromOpenAPI(item) || changed
		}
	case *orderedjson.Object:
		changed = lowerType(v)
		changed = wholeNumbers(v) || changed
		changed = orNull(v) || changed
		changed = unordered(v) || changed
		for name, member := range v.All() {
			schemas, isObject := member.(*orderedjson.Object)
			switch {
			case valueMembers[name]:
			case namedMembers[name] && isObject:
				for _, schema := range schemas.All() {
					changed = fromOpenAPI(schema) || changed
				}
			default:
				changed = fromOpenAPI(member) || changed
			}
		}
	}
	return changed
}

// unordered removes the order of properties, which no JSON Schema has and servers of strict schemas refuse. The properties
// stand in an order of their own.
func unordered(schema *orderedjson.Object) (changed bool) {
	for _, name := range []string{"propertyOrdering", "property_ordering"} {
		if _, has := schema.Get(name); has {
			schema.Delete(name)
			changed = true
		}
	}
	return changed
}

func lowerType(schema *orderedjson.Object) (changed bool) {
	kind, _ := schema.Get("type")
	text, isText := kind.(string)
	if !isText || text == strings.ToLower(text) {
		return false
	}
	schema.Set("type", strings.ToLower(text))
	return true
}

// wholeNumbers makes bounds that are texts numbers: they have 64 bits, which JSON of protobuf writes as texts.
func wholeNumbers(schema *orderedjson.Object) (changed bool) {
	for _, bound := range []string{"minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties"} {
		value, _ := schema.Get(bound)
		if text, isText := value.(string); isText {
			if n, err := strconv.ParseInt(text, 10, 64); err == nil {
				schema.Set(bound, json.Number(strconv.FormatInt(n, 10)))
				changed = true
			}
		}
	}
	return changed
}

// orNull adds null to what a schema that is nullable allows.
func orNull(schema *orderedjson.Object) (changed bool) {
	value, _ := schema.Get("nullable")
	nullable, isBool := value.(bool)
	if !isBool {
		return false
	}
	schema.Delete("nullable")
	if !nullable {
		return true
	}
	const null = "null"
	if kind, _ := schema.Get("type"); kind != nil && kind != null {
		if _, isText := kind.(string); isText {
			schema.Set("type", []any{kind, null})
		}
	}
	if values, _ := schema.Get("enum"); values != nil {
		if list, isList := values.([]any); isList && !slices.Contains(list, nil) {
			schema.Set("enum", append(list, nil))
		}
	}
	if choices, _ := schema.Get("anyOf"); choices != nil {
		if list, isList := choices.([]any); isList {
			object := &orderedjson.Object{}
			object.Set("type", null)
			schema.Set("anyOf", append(list, object))
		}
	}
	return true
}
