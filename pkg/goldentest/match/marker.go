package match

import (
	"encoding/json"
	"regexp"
	"strings"
)

// part is a stretch of a recorded text: literal text, or a marker.
type part struct {
	literal string
	kind    partKind
	// values must occur in the text in place of a prose marker.
	values []any
	// name is the marker of an id, by which it is bound.
	name string
}

type partKind int

const (
	literalPart partKind = iota
	prosePart
	idPart
	// openPart matches any text, also an empty one: the record has only the ends of a long text.
	openPart
)

var numberedID = regexp.MustCompile(`^<id[0-9]+>`)

// parse splits a recorded text into literals and markers. A text that only resembles a marker stays literal.
func parse(text string) []part {
	var (
		parts   []part
		literal strings.Builder
	)
	flush := func() {
		if literal.Len() > 0 {
			parts = append(parts, part{kind: literalPart, literal: literal.String()})
			literal.Reset()
		}
	}
	for text != "" {
		start := strings.IndexByte(text, '<')
		if start < 0 {
			literal.WriteString(text)
			break
		}
		literal.WriteString(text[:start])
		text = text[start:]
		marker, length := parseMarker(text)
		if length == 0 {
			literal.WriteByte('<')
			text = text[1:]
			continue
		}
		flush()
		parts = append(parts, marker)
		text = text[length:]
	}
	flush()
	return parts
}

// parseMarker parses the marker at the start of text and returns its length, or 0 if there is none.
func parseMarker(text string) (part, int) {
	if id := numberedID.FindString(text); id != "" {
		return part{kind: idPart, name: id}, len(id)
	}
	rest, ok := strings.CutPrefix(text, "<prose")
	if !ok {
		return part{}, 0
	}
	if keyed, ok := strings.CutPrefix(rest, ":"); ok {
		end := strings.IndexAny(keyed, " <>{}")
		if end <= 0 {
			return part{}, 0
		}
		rest = keyed[end:]
	}
	marker := part{kind: prosePart}
	if params, ok := strings.CutPrefix(rest, " "); ok {
		values, length := parseParams(params)
		if length == 0 {
			return part{}, 0
		}
		marker.values, rest = values, params[length:]
	}
	rest, ok = strings.CutPrefix(rest, ">")
	if !ok {
		return part{}, 0
	}
	return marker, len(text) - len(rest)
}

// parseParams parses the JSON object at the start of text and returns its values.
func parseParams(text string) (values []any, length int) {
	if !strings.HasPrefix(text, "{") {
		return nil, 0
	}
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	var params map[string]any
	if decoder.Decode(&params) != nil {
		return nil, 0
	}
	for _, value := range params {
		values = append(values, value)
	}
	return values, int(decoder.InputOffset())
}
