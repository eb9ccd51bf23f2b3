package tool

import (
	"encoding/json"
	"math/big"
	"slices"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/json/orderedjson"
)

// coerce converts a valid value into the form that its schema describes, JSON to JSON: integers lose the fraction of
// zero, whole values of numbers get one, so that tools whose language tells the two apart receive the declared type;
// absent members get their default, or null where null is allowed. Unions other than "this or null" and
// enumerations stay as sent. A text that its schema calls a date or a time, and that is none, is an error for the
// model.
func coerce(schema, value any, at *place) (any, error) {
	object, ok := schema.(*orderedjson.Object)
	if !ok || value == nil {
		return value, nil
	}
	if only, ok := orNull(object); ok {
		return coerce(only, value, at)
	}
	if _, enumerated := object.Get("enum"); enumerated {
		return value, nil
	}
	switch v := value.(type) {
	case json.Number:
		return coerceNumber(object, v), nil
	case string:
		return value, checkFormat(object, v, at)
	case []any:
		return coerceItems(object, v, at)
	case *orderedjson.Object:
		return coerceMembers(object, v, at)
	default:
		return value, nil
	}
}

func coerceNumber(schema *orderedjson.Object, number json.Number) json.Number {
	fractional := strings.ContainsAny(string(number), ".eE")
	switch kinds := typesBesideNull(schema); {
	case fractional && slices.Equal(kinds, []any{"integer"}):
		return wholeNumber(number)
	case !fractional && slices.Equal(kinds, []any{"number"}):
		return number + ".0"
	default:
		return number
	}
}

// wholeNumber returns the digits of a number with a fraction or an exponent, if it is whole.
func wholeNumber(number json.Number) json.Number {
	value, ok := new(big.Rat).SetString(string(number))
	if !ok || !value.IsInt() {
		return number
	}
	return json.Number(value.Num().String())
}

func coerceItems(schema *orderedjson.Object, items []any, at *place) (any, error) {
	itemSchema, _ := schema.Get("items")
	out := make([]any, len(items))
	for i, item := range items {
		coerced, err := coerce(itemSchema, item, at)
		if err != nil {
			return nil, err
		}
		out[i] = coerced
	}
	return out, nil
}

func coerceMembers(schema, object *orderedjson.Object, at *place) (any, error) {
	properties := member(schema, "properties")
	additional, _ := schema.Get("additionalProperties")
	out := &orderedjson.Object{}
	for name, value := range object.All() {
		memberSchema, declared := properties.Get(name)
		if !declared {
			memberSchema = additional
		}
		coerced, err := coerce(memberSchema, value, &place{above: at, name: name})
		if err != nil {
			return nil, err
		}
		out.Set(name, coerced)
	}
	for name, memberSchema := range properties.All() {
		if _, present := out.Get(name); present {
			continue
		}
		if value, ok := absent(memberSchema); ok {
			out.Set(name, value)
		}
	}
	return out, nil
}

// absent returns the value of a member that was not sent.
func absent(schema any) (value any, ok bool) {
	object, isObject := schema.(*orderedjson.Object)
	if !isObject {
		return nil, false
	}
	if value, ok := object.Get("default"); ok {
		return value, true
	}
	_, nullable := orNull(object)
	return nil, nullable || allowsNull(object)
}

// orNull returns the schema S of a schema "any of S and null".
func orNull(schema *orderedjson.Object) (only any, ok bool) {
	value, _ := schema.Get("anyOf")
	branches, _ := value.([]any)
	if len(branches) != 2 {
		return nil, false
	}
	for i, branch := range branches {
		if object, ok := branch.(*orderedjson.Object); ok && allowsNull(object) && len(typesBesideNull(object)) == 0 {
			return branches[1-i], true
		}
	}
	return nil, false
}

func allowsNull(schema *orderedjson.Object) bool {
	return slices.Contains(types(schema), "null")
}

func typesBesideNull(schema *orderedjson.Object) []any {
	return slices.DeleteFunc(types(schema), func(name any) bool { return name == "null" })
}

// types returns the types of a schema, whether it names one or a list.
func types(schema *orderedjson.Object) []any {
	value, ok := schema.Get("type")
	if list, isList := value.([]any); isList {
		return slices.Clone(list)
	}
	if !ok {
		return nil
	}
	return []any{value}
}

// member returns an object's member that is an object, or an empty one.
func member(object *orderedjson.Object, name string) *orderedjson.Object {
	value, _ := object.Get(name)
	if inner, ok := value.(*orderedjson.Object); ok {
		return inner
	}
	return &orderedjson.Object{}
}

// place is that of a member in the arguments; nil is the whole. Its text is made for an error alone: a name may be
// long, and have many members below it.
type place struct {
	above *place
	name  string
}

// String returns the names, with a dot between two.
func (p *place) String() string {
	if p == nil {
		return ""
	}
	if above := p.above.String(); above != "" {
		return above + "." + p.name
	}
	return p.name
}
