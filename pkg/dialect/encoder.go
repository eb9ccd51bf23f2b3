package dialect

import (
	"cmp"

	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonread"
	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
)

// Encoder is the part of a format's encoder of requests that is the same in all: the body, what replaces its members,
// the configuration, and what the format cannot express.
type Encoder struct {
	MemberWriter
	// Config is the configuration of the request; it is never nil.
	Config *modelv1.GenerateConfig

	request *Request
	api     string
	refused error
}

// NewEncoder returns an encoder of a request, whose own Members replace others. The body is appended to dst; api is the
// name of the format in prose.
func NewEncoder(dst []byte, r *Request, api string) Encoder {
	body := MemberWriter{Body: jsonwrite.Append(dst, Size(r.Messages, r.Tools)), Overrides: membersOf(r)}
	return Encoder{MemberWriter: body, Config: cmp.Or(r.Config, &modelv1.GenerateConfig{}), request: r, api: api}
}

// TakeExtraBody lets the members of the configuration's extra_body replace others, or refuses it.
func (e *Encoder) TakeExtraBody() {
	overrides, ok := NewOverrides(e.request)
	if e.Overrides = overrides; !ok {
		e.Refuse("config.extra_body_json", "extra_body that is no JSON object")
	}
}

// Further writes the request's own Members whose names are among names, or all others.
func (e *Encoder) Further(among func(name string) bool) {
	for _, m := range e.request.Members {
		if among(m.Name) {
			e.Body.RawMember(m.Name, m.JSON)
		}
	}
}

// Refuse takes content that the format cannot express, of a field of a GenerateRequest. The first refusal is the error
// of the request: an encoder writes on, and asks at the end.
func (e *Encoder) Refuse(field, what string) {
	if e.refused == nil {
		e.refused = &UnsupportedError{API: e.api, What: what, Field: field}
	}
}

// CheckCall refuses a call whose arguments, which pass through unchanged, are no JSON object. Empty ones are.
func (e *Encoder) CheckCall(call *toolv1.ToolCall) {
	if arguments := call.GetArgumentsJson(); arguments != "" && !jsonread.IsObject(arguments) {
		e.Refuse("messages", "a call whose arguments are no JSON object")
	}
}

// CheckTool refuses a tool whose schema, which passes through unchanged, is no JSON object. An empty one is.
func (e *Encoder) CheckTool(tool *toolv1.ToolInfo) {
	if schema := tool.GetParametersJson(); schema != "" && !jsonread.IsObject(schema) {
		e.Refuse("tools", "the tool "+tool.GetName()+", whose schema is no JSON object")
	}
}

// CheckSchema refuses a schema of answers, which passes through unchanged, that is no JSON object. An empty one is.
func (e *Encoder) CheckSchema(schema *modelv1.ResponseSchema) {
	if document := schema.GetJsonSchema(); document != "" && !jsonread.IsObject(document) {
		e.Refuse("config.response_schema.json_schema", "a schema of answers that is no JSON object")
	}
}

// AnyJSON asks for an answer that is a JSON object of any shape, which vendors call JSON mode.
func AnyJSON() *modelv1.ResponseSchema { return &modelv1.ResponseSchema{Name: "json_object"} }

// IsAnyJSON reports whether a schema is such as AnyJSON returns.
func IsAnyJSON(schema *modelv1.ResponseSchema) bool {
	return schema != nil && schema.GetJsonSchema() == ""
}

// RefuseAnyJSON refuses such an answer for an API that gives none without a schema.
func (e *Encoder) RefuseAnyJSON(schema *modelv1.ResponseSchema) {
	if IsAnyJSON(schema) {
		e.Refuse("config.response_schema.json_schema", "an answer that is JSON without a schema")
	}
}

// Written returns the body, or the error of what was refused.
func (e *Encoder) Written() ([]byte, error) {
	if e.refused != nil {
		return nil, e.refused
	}
	return e.Body.Bytes(), nil
}
