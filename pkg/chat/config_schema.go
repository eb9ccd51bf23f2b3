package chat

import (
	"cmp"
	"slices"
	"strings"

	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
	"github.com/evalfleet/evalfleet/pkg/json/lenientjson"
)

// readResponseSchema checks the schema's shape and keeps it as it is written, with all its keywords.
func readResponseSchema(o *lenientjson.Object, c *modelv1.GenerateConfig) {
	if schema := o.Object("response_schema"); schema != nil {
		c.ResponseSchema = readSchema(schema)
	}
}

func readSchema(o *lenientjson.Object) *modelv1.ResponseSchema {
	schema := &modelv1.ResponseSchema{
		Name:        o.RequireText("name"),
		Description: o.String("description"),
		Strict:      o.Bool("strict"),
	}
	if o.Require("json_schema") {
		checkSchema(o.Object("json_schema"))
		schema.JsonSchema = o.RawObject("json_schema")
	}
	return schema
}

func writeResponseSchema(w *jsonwrite.Writer, c *modelv1.GenerateConfig) {
	if schema := c.GetResponseSchema(); schema != nil {
		w.Key("response_schema")
		writeSchema(w, schema)
	}
}

func writeSchema(w *jsonwrite.Writer, schema *modelv1.ResponseSchema) {
	w.BeginObject()
	w.TextMember("name", schema.GetName())
	w.RawMember("json_schema", cmp.Or(schema.GetJsonSchema(), "{}"))
	w.OptText("description", schema.Description)
	w.OptBool("strict", schema.Strict)
	w.EndObject()
}

var schemaTypes = []string{"string", "integer", "number", "boolean", "array", "object", "null"}

// checkSchema finds parts of a JSON Schema that no provider accepts: sub-schemas that are no objects, and keywords of
// the wrong kind.
func checkSchema(o *lenientjson.Object) {
	if _, isWord := lenientjson.AsText(o.Raw("type")); isWord {
		o.Enum("type", schemaTypes...)
	} else if types, _ := o.Strings("type"); types != nil {
		for _, word := range types {
			if !slices.Contains(schemaTypes, word) {
				o.Fail("type", "must be of %s", strings.Join(schemaTypes, ", "))
			}
		}
	}
	for _, text := range []string{"format", "description", "pattern"} {
		o.String(text)
	}
	for _, list := range []string{"enum", "examples"} {
		o.List(list)
	}
	for _, count := range []string{"minLength", "maxLength"} {
		o.Int64(count)
	}
	for _, bound := range []string{"minimum", "maximum"} {
		o.Float(bound)
	}
	o.Strings("required")
	if items := o.Object("items"); items != nil {
		checkSchema(items)
	}
	if properties := o.Object("properties"); properties != nil {
		for name := range properties.Members() {
			if properties.Require(name) {
				checkSchema(properties.Object(name))
			}
		}
	}
	if _, isBool := lenientjson.AsBool(o.Raw("additionalProperties")); !isBool {
		if rest := o.Object("additionalProperties"); rest != nil {
			checkSchema(rest)
		}
	}
	choices, _ := o.Objects("anyOf")
	for _, choice := range choices {
		checkSchema(choice)
	}
}
