package match

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
)

// number is a JSON number as it was written.
type number = json.Number

// normalise converts a value to nil, bool, string, number, []any or map[string]any. Floats that JSON cannot write
// become the texts NaN, Infinity and -Infinity.
func normalise(value any) (any, error) {
	switch value := value.(type) {
	case nil, bool, string, number:
		return value, nil
	case float64:
		return normaliseFloat(value), nil
	case []any:
		list := make([]any, len(value))
		for i, item := range value {
			normal, err := normalise(item)
			if err != nil {
				return nil, err
			}
			list[i] = normal
		}
		return list, nil
	case map[string]any:
		object := make(map[string]any, len(value))
		for name, member := range value {
			normal, err := normalise(member)
			if err != nil {
				return nil, err
			}
			object[name] = normal
		}
		return object, nil
	default:
		return normaliseByJSON(value)
	}
}

func normaliseFloat(value float64) any {
	switch {
	case math.IsNaN(value):
		return "NaN"
	case math.IsInf(value, 1):
		return "Infinity"
	case math.IsInf(value, -1):
		return "-Infinity"
	default:
		return number(strconv.FormatFloat(value, 'g', -1, 64))
	}
}

func normaliseByJSON(value any) (any, error) {
	text, err := json.Marshal(value)
	if err != nil {
		return nil, fmt.Errorf("a %T that is no JSON value: %w", value, err)
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var normal any
	if err := decoder.Decode(&normal); err != nil {
		return nil, fmt.Errorf("a %T that is no JSON value: %w", value, err)
	}
	return normal, nil
}

// equalNumbers compares by value. Whole numbers of any size agree only digit by digit, unless the case has a tolerance;
// numbers beyond float64 only in the same notation.
func (r *rules) equalNumbers(want, got number) bool {
	if want == got {
		return true
	}
	if !r.given && isWhole(want) && isWhole(got) {
		return equalIntegers(string(want), string(got))
	}
	a, errA := want.Float64()
	b, errB := got.Float64()
	if errA != nil || errB != nil {
		return false
	}
	difference := math.Abs(a - b)
	return difference <= r.absolute || difference <= r.relative*math.Max(math.Abs(a), math.Abs(b))
}

func isWhole(n number) bool { return !strings.ContainsAny(string(n), ".eE") }

func equalIntegers(want, got string) bool {
	a, okA := new(big.Int).SetString(want, 10)
	b, okB := new(big.Int).SetString(got, 10)
	return okA && okB && a.Cmp(b) == 0
}

// maxText bounds one shown value, in bytes.
const maxText = 600

// show formats a value for a reader, cut in the middle if it is long.
func show(value any) string {
	if value == nil {
		return "nothing"
	}
	text, ok := value.(string)
	if ok {
		text = strconv.Quote(text)
	} else {
		encoded, err := encode(value)
		if err != nil {
			return fmt.Sprintf("%v", value)
		}
		text = encoded
	}
	if len(text) > maxText {
		half := maxText / 2
		return strings.ToValidUTF8(text[:half], "") + " … " + strings.ToValidUTF8(text[len(text)-half:], "") +
			fmt.Sprintf(" (%d bytes)", len(text))
	}
	return text
}

func showList(list []any) string { return fmt.Sprintf("%d items: %s", len(list), show(list)) }

// encode writes JSON without escaping <, > and &, which markers are full of.
func encode(value any) (string, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(value)
	return strings.TrimSuffix(text.String(), "\n"), err
}
