package jsonwrite

import "encoding/json"

// Marshal encodes a value of which the caller knows that it has a JSON form: without channels, functions, cycles and
// non-finite numbers. It returns nil for any other value.
func Marshal(value any) json.RawMessage {
	b, err := json.Marshal(value)
	if err != nil {
		return nil
	}
	return b
}
