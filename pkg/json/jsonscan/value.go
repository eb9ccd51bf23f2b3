package jsonscan

import (
	"encoding/json"
	"strconv"
)

// Text reads a value that is a text; ok is false for any other.
func Text(value []byte) (text string, ok bool) {
	if len(value) < 2 || value[0] != '"' {
		return "", false
	}
	if end := 1 + Plain(value[1:]); end == len(value)-1 && value[end] == '"' {
		return string(value[1:end]), true // Most texts need no more.
	}
	if json.Unmarshal(value, &text) != nil {
		return "", false
	}
	return text, true
}

// Int reads a value that is an integer, written as one; ok is false for any other.
func Int(value []byte) (n int64, ok bool) {
	n, err := strconv.ParseInt(string(value), 10, 64)
	return n, err == nil
}
