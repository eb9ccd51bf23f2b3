package match

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/goldentest/corpus"
)

const recorded = "../../../testdata/golden"

// Every recorded value agrees with an answer derived from it, with some wording in place of each marker; and no longer
// if one literal or one value of a marker is changed.
func TestEveryRecordedTextMatchesItsOwnWordingOnly(t *testing.T) {
	t.Parallel()
	cases, err := corpus.All(recorded)
	require.NoError(t, err)
	texts := map[string]bool{}
	for _, c := range cases {
		for name, member := range c.Fields {
			if strings.HasPrefix(c.File, "eval/logs/") || name == "about" {
				continue
			}
			collect(member, texts)
		}
	}
	require.Greater(t, len(texts), 300, "texts with markers")
	for text := range texts {
		parts := parse(text)
		assert.Empty(t, Equal(text, word(parts, -1)), "%q", text)
		for spoilt, p := range parts {
			if p.kind == literalPart || len(p.values) > 0 {
				assert.NotEmpty(t, Equal(text, word(parts, spoilt)), "part %d of %q", spoilt, text)
			}
		}
	}
}

// A value compared with itself agrees where no marker asks for more, and differs when any one leaf is changed.
func TestEveryRecordedCaseEqualsItselfWithWording(t *testing.T) {
	t.Parallel()
	cases, err := corpus.All(recorded)
	require.NoError(t, err)
	for _, c := range cases {
		if strings.HasPrefix(c.File, "eval/logs/") {
			continue
		}
		expect := c.Fields["expect"]
		if expect == nil {
			continue
		}
		answer := answerTo(expect)
		assert.Empty(t, Equal(expect, answer), "%s %s", c.File, c.ID)
		if changed, ok := change(answer); ok {
			assert.NotEmpty(t, Equal(expect, changed), "%s %s", c.File, c.ID)
		}
	}
}

// What looks like a marker in the recorded files is one that the package knows, or is plain text on purpose.
func TestEveryRecordedProseMarkerIsRead(t *testing.T) {
	t.Parallel()
	cases, err := corpus.All(recorded)
	require.NoError(t, err)
	texts := map[string]bool{}
	for _, c := range cases {
		collect(c.Fields, texts)
	}
	for text := range texts {
		for _, p := range parse(text) {
			if p.kind == literalPart {
				assert.NotContains(t, p.literal, "<prose", "%q", text)
			}
		}
	}
}

// collect gathers the texts with markers, and long texts written out.
func collect(value any, texts map[string]bool) {
	switch value := value.(type) {
	case string:
		if strings.Contains(value, "<prose") || numberedID.MatchString(value) {
			texts[value] = true
		}
	case []any:
		for _, item := range value {
			collect(item, texts)
		}
	case map[string]any:
		if long, ok := value["$long"].(map[string]any); ok {
			if text, ok := corpus.LongText(long); ok {
				collect(text, texts)
			}
			return
		}
		for _, member := range value {
			collect(member, texts)
		}
	}
}

// word puts wording in place of the markers; the part spoilt, if any, is left out or says nothing.
func word(parts []part, spoilt int) string {
	var text strings.Builder
	for i, p := range parts {
		switch {
		case p.kind == literalPart && i == spoilt:
			text.WriteString("\x01")
		case p.kind == literalPart:
			text.WriteString(p.literal)
		case p.kind == idPart:
			text.WriteString("id-" + strings.Trim(p.name, "<>"))
		case i == spoilt:
			text.WriteString("Nothing of it.")
		default:
			text.WriteString("Our wording")
			for _, value := range p.values {
				text.WriteString(" says " + fmt.Sprint(value))
			}
			text.WriteString(" here.")
		}
	}
	return text.String()
}

func answerTo(value any) any {
	switch value := value.(type) {
	case string:
		if value == "<empty>" {
			return ""
		}
		if strings.HasPrefix(value, "<id:") {
			return strings.Trim(value, "<>")[len("id:"):] + "1"
		}
		return word(parse(value), -1)
	case []any:
		list := make([]any, len(value))
		for i, item := range value {
			list[i] = answerTo(item)
		}
		return list
	case map[string]any:
		if long, ok := value["$long"].(map[string]any); ok {
			if text, ok := corpus.LongText(long); ok {
				return word(parse(text), -1)
			}
		}
		object := make(map[string]any, len(value))
		for name, member := range value {
			object[name] = answerTo(member)
		}
		return object
	default:
		return value
	}
}

// change returns the value with one number or flag changed, if it holds one.
func change(value any) (any, bool) {
	switch value := value.(type) {
	case json.Number:
		return json.Number("123454321"), value != "123454321"
	case bool:
		return !value, true
	case []any:
		for i, item := range value {
			if changed, ok := change(item); ok {
				list := append([]any{}, value...)
				list[i] = changed
				return list, true
			}
		}
	case map[string]any:
		for name, member := range value {
			if changed, ok := change(member); ok {
				object := map[string]any{name: changed}
				for other, member := range value {
					if other != name {
						object[other] = member
					}
				}
				return object, true
			}
		}
	}
	return value, false
}
