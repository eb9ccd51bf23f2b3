package corpus

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Expand returns a copy of a recorded value in which abbreviations are written out, for use as an input:
//
//   - {"$long": {"runs": [[unit, count], …]}} becomes the text;
//   - {"$nested_arrays_under": name, "depth": n} becomes an object whose member name holds n arrays inside each other;
//   - {"$number": text} becomes the number, so that 1e400 reaches the reader as it was written.
//
// A long text without runs was recorded by its ends alone and cannot be written out: an error.
func Expand(value any) (any, error) {
	switch value := value.(type) {
	case map[string]any:
		return expandObject(value)
	case []any:
		list := make([]any, len(value))
		for i, item := range value {
			expanded, err := Expand(item)
			if err != nil {
				return nil, err
			}
			list[i] = expanded
		}
		return list, nil
	default:
		return value, nil
	}
}

func expandObject(object map[string]any) (any, error) {
	if long, ok := object["$long"].(map[string]any); ok {
		text, ok := LongText(long)
		if !ok {
			return nil, fmt.Errorf("a long text without runs cannot be written out")
		}
		return text, nil
	}
	if name, ok := object["$nested_arrays_under"].(string); ok {
		depth, err := count(object["depth"])
		if err != nil {
			return nil, fmt.Errorf("$nested_arrays_under: %w", err)
		}
		var nested any = []any{}
		for range depth - 1 {
			nested = []any{nested}
		}
		return map[string]any{name: nested}, nil
	}
	if number, ok := object["$number"].(string); ok {
		return json.Number(number), nil
	}
	expanded := make(map[string]any, len(object))
	for name, member := range object {
		value, err := Expand(member)
		if err != nil {
			return nil, err
		}
		expanded[name] = value
	}
	return expanded, nil
}

// maxLong bounds a text written out from runs, in bytes.
const maxLong = 64 << 20

// LongText expands the runs of a long text ({"runs": [[unit, count], …], …}). It is false if there are none or they are
// not of that form.
func LongText(long map[string]any) (string, bool) {
	runs, ok := long["runs"].([]any)
	if !ok {
		return "", false
	}
	var text strings.Builder
	for _, run := range runs {
		pair, _ := run.([]any)
		if len(pair) != 2 {
			return "", false
		}
		unit, isText := pair[0].(string)
		times, err := count(pair[1])
		if !isText || err != nil || (len(unit) > 0 && times > (maxLong-text.Len())/len(unit)) {
			return "", false
		}
		text.WriteString(strings.Repeat(unit, times))
	}
	return text.String(), true
}

func count(value any) (int, error) {
	number, ok := value.(json.Number)
	if !ok {
		return 0, fmt.Errorf("%v is not a count", value)
	}
	n, err := number.Int64()
	if err != nil || n < 0 || n > maxLong {
		return 0, fmt.Errorf("%v is not a count", number)
	}
	return int(n), nil
}

// Substitute returns a copy of a JSON value with text replaced in every string and member name, by pairs of old and new
// as strings.NewReplacer takes them. With `<workdir>` and the sandbox's directory it prepares an input; with the two
// exchanged it brings a result back to the recorded form.
func Substitute(value any, oldnew ...string) any {
	return substitute(value, strings.NewReplacer(oldnew...))
}

func substitute(value any, replacer *strings.Replacer) any {
	switch value := value.(type) {
	case string:
		return replacer.Replace(value)
	case []any:
		list := make([]any, len(value))
		for i, item := range value {
			list[i] = substitute(item, replacer)
		}
		return list
	case map[string]any:
		object := make(map[string]any, len(value))
		for name, member := range value {
			object[replacer.Replace(name)] = substitute(member, replacer)
		}
		return object
	default:
		return value
	}
}
