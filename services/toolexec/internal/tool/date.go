package tool

import (
	"strings"
	"time"

	"github.com/evalfleet/evalfleet/pkg/json/orderedjson"
)

// checkFormat rejects a text that does not match its schema's format. Formats other than those of dates and times
// assert nothing.
func checkFormat(schema *orderedjson.Object, text string, at *place) error {
	format, _ := schema.Get("format")
	valid := true
	switch format {
	case "date":
		valid = isDate(text)
	case "time":
		valid = isTime(text)
	case "date-time":
		valid = isDateTime(text)
	}
	if !valid {
		return Parsingf("%s: %q is not a %s, such as %s", at, text, format, formatExamples[format.(string)])
	}
	return nil
}

var formatExamples = map[string]string{
	"date":      "2024-05-06",
	"time":      "07:08:09",
	"date-time": "2024-05-06T07:08:09Z",
}

// timeLayouts are ISO 8601 times of day: seconds, their fraction and the offset may be absent.
var timeLayouts = []string{"15:04", "15:04Z07:00", "15:04:05", "15:04:05Z07:00"}

func isDate(text string) bool {
	_, err := time.Parse(time.DateOnly, text)
	return err == nil
}

func isTime(text string) bool {
	if len(text) < 3 || text[2] != ':' { // time.Parse accepts an hour of one digit
		return false
	}
	for _, layout := range timeLayouts {
		if _, err := time.Parse(layout, text); err == nil {
			return true
		}
	}
	return false
}

func isDateTime(text string) bool {
	if len(text) > len(time.DateOnly) && strings.ContainsRune("Tt ", rune(text[len(time.DateOnly)])) {
		return isDate(text[:len(time.DateOnly)]) && isTime(text[len(time.DateOnly)+1:])
	}
	return isDate(text)
}
