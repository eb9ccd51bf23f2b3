package printable_test

import (
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/services/allinone/internal/printable"
)

func TestWhatATerminalActsOnIsTakenOut(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][2]string{
		"plain · text, ”ü”, 漢字 👍": {"plain · text, ”ü”, 漢字 👍", "plain · text, ”ü”, 漢字 👍"},
		"\x1b[2J\x1b]0;title\a":   {"·[2J·]0;title·", "·[2J·]0;title·"},
		"a\nb\tc\r\nd":            {"a\nb\tc\nd", "a b c d"},
		"\u009b31m\x7f":           {"·31m·", "·31m·"},
		"\u202etxt.exe\u2066":     {"·txt.exe·", "·txt.exe·"},
		"a\u2028b":                {"a·b", "a·b"},
		"a\xffb":                  {"a·b", "a·b"},
	} {
		assert.Equal(t, want[0], printable.Text(text), "%q", text)
		assert.Equal(t, want[1], printable.Line(text), "%q", text)
	}
}

func FuzzLine(f *testing.F) {
	f.Add("\x1b[31m\u009b\u202e\n\xff")
	f.Fuzz(func(t *testing.T, text string) {
		line := printable.Line(text)
		require.True(t, utf8.ValidString(line))
		for _, r := range line {
			require.False(t, unicode.IsControl(r), "%q", r)
		}
		require.Equal(t, line, printable.Line(line))
	})
}
