// Package param describes and reads the parameters of scorers and metrics.
//
// One list of parameters has three uses: Decode checks the parameters of a task file, Schema describes them to programs
// as JSON Schema, and the fields describe them to people. Decoding is strict: an unknown name, a wrong type or a
// forbidden value is an error that names the parameter and the accepted values.
package param

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/suggest"
)

// Type is the JSON type of a parameter.
type Type string

// The types of parameters. Any leaves the check to the reader, or to Enum.
const (
	String  Type = "string"
	Boolean Type = "boolean"
	Integer Type = "integer"
	Number  Type = "number"
	Strings Type = "array" // a list of strings
	Any     Type = ""
)

// Param describes one parameter.
type Param struct {
	Name        string
	Type        Type
	Description string
	// Default is the default value, as JSON; nil if there is none.
	Default json.RawMessage
	// Enum lists the only values allowed, as JSON; nil allows all of the type.
	Enum []string
	// Required refuses a call without the parameter.
	Required bool
}

// List are the parameters of a scorer or metric, in the order for people.
type List []Param

// Invalid returns the error for a parameter, with the fault and the accepted values.
func Invalid(name, format string, args ...any) error {
	return rpcerr.InvalidField("params_json/"+name, format, args...)
}

// Decode checks the JSON object raw and reads it into a struct whose fields are tagged with the parameters' names and
// already hold the defaults. Nil, an empty text and null are an empty object; a null parameter counts as absent. Every
// error is an INVALID_REQUEST whose field is `params_json/NAME`.
func (l List) Decode(raw json.RawMessage, into any) error {
	given, err := l.given(raw)
	if err != nil {
		return err
	}
	for _, p := range l {
		value, ok := given[p.Name]
		if !ok {
			if p.Required {
				return Invalid(p.Name, "is required")
			}
			continue
		}
		if err := p.check(value); err != nil {
			return err
		}
		one, err := json.Marshal(map[string]json.RawMessage{p.Name: value})
		if err == nil {
			err = json.Unmarshal(one, into)
		}
		if err != nil {
			return Invalid(p.Name, "%v", err)
		}
	}
	return nil
}

// given reads the object, without nulls, and refuses names that are not in the list.
func (l List) given(raw json.RawMessage) (map[string]json.RawMessage, error) {
	if len(bytes.TrimSpace(raw)) == 0 {
		return nil, nil
	}
	var given map[string]json.RawMessage
	if err := json.Unmarshal(raw, &given); err != nil {
		return nil, rpcerr.InvalidField("params_json", "want a JSON object of parameters by name: %v", err)
	}
	for name, value := range given {
		if !slices.ContainsFunc(l, func(p Param) bool { return p.Name == name }) {
			return nil, Invalid(name, "is not known; %s", l.known(name))
		}
		if string(value) == "null" {
			delete(given, name)
		}
	}
	return given, nil
}

// known suggests the name that was probably meant, and lists the known names.
func (l List) known(written string) string {
	if len(l) == 0 {
		return "there are no parameters"
	}
	names := make([]string, len(l))
	for i, p := range l {
		names[i] = p.Name
	}
	return suggest.Question(written, names) + "known are " + strings.Join(names, ", ")
}

// check compares one value with the type and the values allowed.
func (p Param) check(value json.RawMessage) error {
	if p.Enum != nil && !slices.Contains(p.Enum, string(value)) {
		return Invalid(p.Name, "is %s; allowed are %s", value, strings.Join(p.Enum, ", "))
	}
	if p.Type != Any && !p.Type.holds(value) {
		return Invalid(p.Name, "is %s; want %s", value, p.Type.article())
	}
	return nil
}

func (t Type) holds(raw json.RawMessage) bool {
	var err error
	switch t {
	case String:
		err = json.Unmarshal(raw, new(string))
	case Boolean:
		err = json.Unmarshal(raw, new(bool))
	case Integer:
		err = json.Unmarshal(raw, new(int))
	case Number:
		err = json.Unmarshal(raw, new(float64))
	case Strings:
		var items []*string
		err = json.Unmarshal(raw, &items)
		return err == nil && !slices.Contains(items, nil)
	case Any:
	}
	return err == nil
}

func (t Type) article() string {
	switch t {
	case Integer:
		return "an integer"
	case Strings:
		return "a list of strings"
	case String, Boolean, Number, Any:
	}
	return "a " + string(t)
}

// Schema returns the JSON Schema of the parameters' object.
func (l List) Schema() json.RawMessage {
	var b bytes.Buffer
	b.WriteString(`{"type":"object","properties":{`)
	var required []string
	for i, p := range l {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "%s:%s", quote(p.Name), p.schema())
		if p.Required {
			required = append(required, quote(p.Name))
		}
	}
	b.WriteByte('}')
	if required != nil {
		fmt.Fprintf(&b, `,"required":[%s]`, strings.Join(required, ","))
	}
	b.WriteString(`,"additionalProperties":false}`)
	return b.Bytes()
}

func (p Param) schema() string {
	var fields []string
	if p.Type != Any {
		fields = append(fields, `"type":`+quote(string(p.Type)))
	}
	if p.Type == Strings {
		fields = append(fields, `"items":{"type":"string"}`)
	}
	fields = append(fields, `"description":`+quote(p.Description))
	if p.Default != nil {
		fields = append(fields, `"default":`+string(p.Default))
	}
	if p.Enum != nil {
		fields = append(fields, `"enum":[`+strings.Join(p.Enum, ",")+`]`)
	}
	return "{" + strings.Join(fields, ",") + "}"
}

// quote writes s as a JSON string.
func quote(s string) string {
	// A string always has a JSON form.
	raw, _ := json.Marshal(s)
	return string(raw)
}
