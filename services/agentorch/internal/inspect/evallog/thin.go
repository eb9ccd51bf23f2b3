package evallog

import (
	"encoding/json"
	"strings"
	"unicode/utf8"

	"github.com/evalfleet/evalfleet/pkg/json/orderedjson"
)

const (
	// maxSummaryText is how many characters of an input or target a summary has.
	maxSummaryText = 5120
	// maxSummaryValue is how many characters of a score's text, and of the JSON of a metadata value, a summary has.
	maxSummaryValue = 1024
)

// cutNote follows a truncated text; removedNote replaces a metadata value that is too long.
const (
	cutNote     = "...\n(cut for the summary)"
	removedNote = "(left out of the summary: longer than 1024 characters)"
)

// thinInput truncates long texts of an input and names parts that are not text.
func thinInput(input json.RawMessage) json.RawMessage {
	value, err := orderedjson.Decode(input)
	if err != nil {
		return input
	}
	messages, ok := value.([]any)
	if !ok {
		return thinTarget(input)
	}
	for _, m := range messages {
		if message, ok := m.(*orderedjson.Object); ok {
			content, _ := message.Get("content")
			message.Set("content", thinContent(content))
		}
	}
	return orderedjson.Append(nil, messages)
}

func thinContent(content any) any {
	parts, ok := content.([]any)
	if !ok {
		return thinValue(content)
	}
	for i, p := range parts {
		part, ok := p.(*orderedjson.Object)
		if !ok {
			continue
		}
		text := &orderedjson.Object{}
		text.Set("type", "text")
		kind, _ := part.Get("type")
		if name, _ := kind.(string); name != "" && name != "text" {
			text.Set("text", "("+strings.ToUpper(name[:1])+name[1:]+")")
		} else {
			given, _ := part.Get("text")
			text.Set("text", thinValue(given))
		}
		parts[i] = text
	}
	return parts
}

// thinTarget cuts a text, or each of several.
func thinTarget(target json.RawMessage) json.RawMessage {
	value, err := orderedjson.Decode(target)
	if err != nil {
		return target
	}
	if texts, ok := value.([]any); ok {
		for i := range texts {
			texts[i] = thinValue(texts[i])
		}
		return orderedjson.Append(nil, texts)
	}
	return orderedjson.Append(nil, thinValue(value))
}

func thinValue(value any) any {
	if text, ok := value.(string); ok {
		if cut := firstRunes(text, maxSummaryText); cut != text {
			return cut + cutNote
		}
	}
	return value
}

// thinMetadata keeps numbers and booleans, shortens texts and leaves out long values.
func thinMetadata(metadata json.RawMessage) json.RawMessage {
	object, err := orderedjson.DecodeObject(metadata)
	if err != nil {
		return nil
	}
	thin := &orderedjson.Object{}
	for name, value := range object.All() {
		switch v := value.(type) {
		case string:
			value = shorten(v)
		case []any, *orderedjson.Object:
			if utf8.RuneCount(orderedjson.Append(nil, v)) > maxSummaryValue {
				value = removedNote
			}
		}
		thin.Set(name, value)
	}
	return orderedjson.Append(nil, thin)
}

func (s Score) thin() Score {
	for _, text := range []**string{&s.Answer, &s.Explanation} {
		if *text != nil {
			*text = new(shorten(**text))
		}
	}
	s.Reason = shorten(s.Reason)
	if s.Metadata != nil {
		s.Metadata = thinMetadata(s.Metadata)
	}
	return s
}

// shorten puts single spaces between words and cuts at a word.
func shorten(text string) string {
	const mark = "..."
	text = strings.Join(strings.Fields(firstRunes(text, 8*maxSummaryValue)), " ")
	if utf8.RuneCountInString(text) <= maxSummaryValue {
		return text
	}
	cut := firstRunes(text, maxSummaryValue-len(mark)+1) // A space may follow the last word that fits.
	at := strings.LastIndexByte(cut, ' ')
	return cut[:max(at, 0)] + mark
}

// firstRunes returns the first n characters of a text.
func firstRunes(text string, n int) string {
	if len(text) <= n {
		return text
	}
	for i := range text {
		if n == 0 {
			return text[:i]
		}
		n--
	}
	return text
}
