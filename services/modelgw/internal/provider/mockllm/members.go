package mockllm

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/config"
	"github.com/evalfleet/evalfleet/pkg/suggest"
)

// decodeStrictly decodes a document into a struct. A member that the struct, or a nested one, does not have is an error
// that lists the existing ones.
func decodeStrictly(raw []byte, into any) error {
	if err := checkMembers(raw, reflect.TypeOf(into)); err != nil {
		return err
	}
	err := json.Unmarshal(raw, into)
	if mismatch, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		_, digits, _ := strings.Cut(mismatch.Value, " ") // A number that does not fit is followed by them.
		return fmt.Errorf("%s must be %s, not %s", cmp.Or(mismatch.Field, "the whole"), config.KindOf(mismatch.Type), cmp.Or(digits, words[mismatch.Value]))
	}
	if err != nil {
		return errors.New(strings.TrimPrefix(err.Error(), "json: "))
	}
	return nil
}

// words are the names of the kinds of JSON values that encoding/json uses.
var words = map[string]string{"string": "a text", "number": "a number", "bool": "true or false", "array": "a list", "object": "a map"}

var rawMessage = reflect.TypeFor[json.RawMessage]()

// checkMembers looks for members that a type does not have. Decoding reports other mismatches.
func checkMembers(raw []byte, t reflect.Type) error {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case t == rawMessage:
		return nil
	case t.Kind() == reflect.Slice:
		var items []json.RawMessage
		if json.Unmarshal(raw, &items) != nil {
			return nil //nolint:nilerr // decoding says it better
		}
		for _, item := range items {
			if err := checkMembers(item, t.Elem()); err != nil {
				return err
			}
		}
		return nil
	case t.Kind() == reflect.Struct:
		return checkObject(raw, t)
	default:
		return nil
	}
}

func checkObject(raw []byte, t reflect.Type) error {
	var members map[string]json.RawMessage
	if json.Unmarshal(raw, &members) != nil {
		return nil //nolint:nilerr // decoding says it better
	}
	known := map[string]reflect.Type{}
	var names []string
	for field := range t.Fields() {
		if name := field.Tag.Get("json"); name != "" {
			known[name] = field.Type
			names = append(names, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(members)) {
		member, ok := known[name]
		if !ok {
			return fmt.Errorf("unknown field %q; %s%s", name, suggest.Question(name, names), suggest.Known(names))
		}
		if err := checkMembers(members[name], member); err != nil {
			return err
		}
	}
	return nil
}
