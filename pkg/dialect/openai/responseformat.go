package openai

import (
	"encoding/json"

	"github.com/evalfleet/evalfleet/pkg/dialect"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
)

// ResponseFormat is the form that an answer is to have, on the wire as chat completions have it.
type ResponseFormat struct {
	Type   string `json:"type"`
	Schema struct {
		Name        string          `json:"name"`
		Description *string         `json:"description"`
		Schema      json.RawMessage `json:"schema"`
		Strict      *bool           `json:"strict"`
	} `json:"json_schema"`
}

// ReadResponseSchema reads the schema that an answer is to have; nil if it is to have none. param is where the format
// is.
func ReadResponseSchema(f *ResponseFormat, param string) (*modelv1.ResponseSchema, error) {
	if f == nil {
		return nil, nil
	}
	switch f.Type {
	case "json_schema":
		s := f.Schema
		if s.Name == "" || len(s.Schema) == 0 {
			return nil, dialect.Invalid(param+".json_schema", "needs a name and a schema")
		}
		return &modelv1.ResponseSchema{Name: s.Name, JsonSchema: string(s.Schema), Description: s.Description, Strict: s.Strict}, nil
	case "text":
		return nil, nil
	case AnyJSON:
		return dialect.AnyJSON(), nil
	default:
		return nil, dialect.Invalid(param+".type", "%q is none of text, json_object, json_schema", f.Type)
	}
}

// AnyJSON is the type of a format that is a JSON object of any shape.
const AnyJSON = "json_object"

// WriteResponseSchema writes a schema as the format of an answer.
func WriteResponseSchema(w *jsonwrite.Writer, schema *modelv1.ResponseSchema) {
	if dialect.IsAnyJSON(schema) {
		w.TextObject("type", AnyJSON)
		return
	}
	w.BeginObject()
	w.TextMember("type", "json_schema")
	w.BeginObjectMember("json_schema")
	w.TextMember("name", schema.GetName())
	w.OptText("description", schema.Description)
	w.RawUnlessEmpty("schema", schema.GetJsonSchema())
	w.OptBool("strict", schema.Strict)
	w.EndObject()
	w.EndObject()
}

// ReadStops reads one stop sequence, or a list of them; nil if there is none. param is where they are.
func ReadStops(raw json.RawMessage, param string) (*modelv1.StringList, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	var one *string
	if json.Unmarshal(raw, &one) == nil {
		if one == nil {
			return nil, nil
		}
		return dialect.Stops([]string{*one}), nil
	}
	var list []string
	if json.Unmarshal(raw, &list) != nil {
		return nil, dialect.Invalid(param, "is neither a text nor a list of texts")
	}
	return dialect.Stops(list), nil
}
