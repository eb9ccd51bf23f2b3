// Package argument turns the text that a model gave as arguments of a tool call into a JSON object.
//
// Providers promise JSON and mostly send it. This package handles the exceptions once, for every provider: an object
// with stray quotes after it, bare text for a tool with one parameter, broken JSON.
package argument

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/argument/yaml11"
	"github.com/evalfleet/evalfleet/pkg/headtail"
	"github.com/evalfleet/evalfleet/pkg/json/orderedjson"
	"github.com/evalfleet/evalfleet/pkg/yamlnode"
)

const (
	// MaxDepth is how deep arguments may nest, the object itself included.
	MaxDepth = 100
	// maxQuoted bounds the raw text that an error repeats, in bytes.
	maxQuoted = 16 << 10
)

// ErrTooDeep is the error for arguments that nest deeper than MaxDepth.
var ErrTooDeep = fmt.Errorf("the arguments are nested deeper than %d levels", MaxDepth)

// Parse parses the argument text of one call. first is the name of the tool's first parameter; it is empty if the tool
// is unknown or has no parameters.
//
// Text that begins with `{` is a JSON object. It is returned byte for byte, except blanks around it; only if a name
// occurs twice (the last value counts) or a text contains half a surrogate pair (it becomes U+FFFD) the object is
// encoded again. Quotes and blanks after the object are dropped, since some models add them. NaN and Infinity are not
// JSON and are refused.
//
// Any other text is the value of the first parameter, read as YAML 1.1: `010` is 8 and `yes` is true. Text that is not
// YAML is used as it is. Without a parameter to bind it to, the text is dropped and the arguments are empty.
//
// An error's text is for the model: it holds the raw text, its middle left out above 16 KiB, and the reason.
func Parse(text, first string) (json.RawMessage, error) {
	text = strings.TrimSpace(text)
	if strings.HasPrefix(text, "{") {
		return parseObject(text)
	}
	if first == "" {
		return json.RawMessage("{}"), nil
	}
	value, err := parseValue(text)
	if err != nil {
		return nil, err
	}
	var arguments orderedjson.Object
	arguments.Set(first, value)
	raw := json.RawMessage(orderedjson.Append(nil, &arguments))
	if orderedjson.Depth(raw) > MaxDepth {
		return nil, ErrTooDeep
	}
	return raw, nil
}

func parseObject(text string) (json.RawMessage, error) {
	document := []byte(text)
	if !json.Valid(document) {
		document = withoutStrayQuotes(document)
	}
	object, err := orderedjson.Tidy(document)
	if err != nil {
		return nil, notJSON(text, err)
	}
	if orderedjson.Depth(object) > MaxDepth {
		return nil, ErrTooDeep
	}
	return object, nil
}

// withoutStrayQuotes returns the complete object at the start of text if only quotes and blanks follow it, else text.
func withoutStrayQuotes(text []byte) []byte {
	dec := json.NewDecoder(bytes.NewReader(text))
	var object json.RawMessage
	if dec.Decode(&object) != nil || len(bytes.Trim(text[dec.InputOffset():], "\" \t\r\n")) > 0 {
		return text
	}
	return object
}

// parseValue parses text as YAML, or else uses it as it is.
func parseValue(text string) (any, error) {
	document, err := yaml11.ToJSON(text)
	if errors.Is(err, yamlnode.ErrTooDeep) || errors.Is(err, yamlnode.ErrCycle) {
		return nil, ErrTooDeep
	}
	if err != nil {
		return text, nil
	}
	return orderedjson.Decode(document)
}

func notJSON(text string, reason error) error {
	if len(text) <= maxQuoted {
		return fmt.Errorf("the arguments are not valid JSON (%w): %s", reason, text)
	}
	return fmt.Errorf("the arguments are not valid JSON (%w; of %d bytes the middle is left out here): %s",
		reason, len(text), headtail.Cut(text, maxQuoted))
}
