package jsonwrite

import "encoding/json"

// Marshal encodes a value that is known to have a JSON form: without channels, functions, cycles and non-finite
// numbers. It returns nil for any other value.
func Marshal(value any) json.RawMessage {
	b, err := json.Marshal(value)
	if err != nil {
		return nil
	}
	return b
}
