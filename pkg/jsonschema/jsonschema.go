// Package jsonschema checks JSON against JSON Schema, as tools declare it for their arguments and options.
//
// Schemas keep their original text, since models see them. Validation is that of github.com/santhosh-tekuri/jsonschema,
// draft 7 unless a schema names another, with two differences: every violation is reported, also an enum beside a wrong
// type, since a model that sees all of them corrects all of them; and `format` asserts nothing. Schemas are untrusted,
// so nothing outside of them is ever read, and size, nesting and numbers are bounded.
package jsonschema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/evalfleet/evalfleet/pkg/bound"
	"github.com/evalfleet/evalfleet/pkg/json/orderedjson"
)

const (
	// MaxDepth is how deep schemas and checked values may nest.
	MaxDepth = bound.SchemaDepth
	// MaxSchemaBytes bounds the text of a schema.
	MaxSchemaBytes = bound.SchemaBytes
	// maxDigits bounds the text and the exponent of a number: comparing larger ones takes seconds.
	maxDigits = bound.SchemaDigits
)

var (
	// ErrTooDeep is the error for a schema or a value that nests deeper than MaxDepth.
	ErrTooDeep = fmt.Errorf("nested deeper than %d levels", MaxDepth)
	// ErrNumber is the error for a number with too many digits to be compared.
	ErrNumber = errors.New("a number is out of range")
)

// location is the name of every schema; none is ever loaded from it.
const location = "schema:"

// Schema is a compiled schema. It is safe for concurrent use.
type Schema struct {
	text     json.RawMessage
	compiled *jsonschema.Schema
}

// Compile compiles a schema. It fails on text that is not a schema, on references that lead out of it or are circular,
// on patterns outside RE2, and on schemas over MaxSchemaBytes or MaxDepth or that apply too many schemas to one value.
func Compile(text json.RawMessage) (*Schema, error) {
	if len(text) > MaxSchemaBytes {
		return nil, fmt.Errorf("the schema is larger than %d bytes", MaxSchemaBytes)
	}
	document, err := decode(text)
	if err != nil {
		return nil, fmt.Errorf("the schema cannot be read: %w", err)
	}
	compiled, err := compile(separate(document))
	if err != nil {
		if _, plain := compile(document); plain != nil {
			err = plain // It names places as the author knows them.
		}
		return nil, fmt.Errorf("not a JSON Schema: %w", explain(err))
	}
	if at, endless := findLoop(compiled); endless {
		return nil, fmt.Errorf("not a JSON Schema: the schema at %s leads back to itself, so that no value could be checked", at)
	}
	if at, costly := findCostly(compiled); costly {
		return nil, fmt.Errorf("not a JSON Schema that can be used: the schema at %s applies more than %d others to one value", at, bound.SchemaApplications)
	}
	return &Schema{text: slices.Clone(text), compiled: compiled}, nil
}

func compile(document any) (*jsonschema.Schema, error) {
	compiler := jsonschema.NewCompiler()
	compiler.DefaultDraft(jsonschema.Draft7)
	compiler.UseLoader(jsonschema.SchemeURLLoader{}) // knows no scheme, so it loads nothing
	if err := compiler.AddResource(location, document); err != nil {
		return nil, err
	}
	return compiler.Compile(location)
}

// Text returns the schema as it was given. The caller must not change it.
func (s *Schema) Text() json.RawMessage { return s.text }

// Members returns the names and descriptions of the members that the schema's own properties name.
func (s *Schema) Members() map[string]string {
	var schema struct {
		Properties map[string]json.RawMessage `json:"properties"`
	}
	_ = json.Unmarshal(s.text, &schema) // It was compiled.
	members := map[string]string{}
	for name, text := range schema.Properties {
		var property struct {
			Description string `json:"description"`
		}
		_ = json.Unmarshal(text, &property) // It may be true or false.
		members[name] = property.Description
	}
	return members
}

// Check returns every violation of the schema by a JSON document, in a fixed order; none if the document is valid. If
// their text is longer than 16 MiB, the rest is left out. It fails if the document cannot be checked: it is not JSON,
// or ErrTooDeep, or ErrNumber.
func (s *Schema) Check(document json.RawMessage) ([]Violation, error) {
	value, err := decode(document)
	if err != nil {
		return nil, err
	}
	err = s.compiled.Validate(value)
	if err == nil {
		return nil, nil
	}
	invalid, ok := errors.AsType[*jsonschema.ValidationError](err)
	if !ok {
		return nil, err
	}
	return violations(invalid), nil
}

// decode reads a document into maps, within the bounds.
func decode(document json.RawMessage) (any, error) {
	if orderedjson.Depth(document) > MaxDepth {
		return nil, ErrTooDeep
	}
	dec := json.NewDecoder(bytes.NewReader(document))
	dec.UseNumber()
	var value any
	if err := dec.Decode(&value); err != nil {
		return nil, err
	}
	if dec.More() {
		return nil, errors.New("text follows the JSON value")
	}
	return value, checkNumbers(value)
}

func checkNumbers(value any) error {
	switch v := value.(type) {
	case json.Number:
		return checkNumber(string(v))
	case []any:
		for _, item := range v {
			if err := checkNumbers(item); err != nil {
				return err
			}
		}
	case map[string]any:
		for _, item := range v {
			if err := checkNumbers(item); err != nil {
				return err
			}
		}
	}
	return nil
}

func checkNumber(number string) error {
	if len(number) > maxDigits {
		return fmt.Errorf("%w: %s… has %d digits", ErrNumber, number[:20], len(number))
	}
	_, exponent, _ := bytes.Cut(bytes.ToLower([]byte(number)), []byte("e"))
	if exponent = bytes.TrimLeft(exponent, "+-0"); len(exponent) > 3 {
		return fmt.Errorf("%w: %.20s", ErrNumber, number)
	}
	return nil
}
