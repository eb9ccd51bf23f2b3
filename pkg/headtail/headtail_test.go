package headtail_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"

	"github.com/evalfleet/evalfleet/pkg/headtail"
)

func TestCut(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, text string
		limit      int
		want       string
	}{
		{"short text stays", "abc", 3, "abc"},
		{"empty text", "", 0, ""},
		{"an even limit takes halves", "abcdefghij", 6, "abchij"},
		{"of an odd limit the tail has more", "abcdefghij", 7, "abcghij"},
		{"one byte is the last", "abcdefghij", 1, "j"},
		{"nothing is kept of limit 0", "abc", 0, ""},
		{"nothing is kept below 0", "abc", -1, ""},
		{"halved characters go on both sides", "a🌍b🌎c", 5, "ac"},
		{"two-byte characters that fit stay", "éééééé", 4, "éé"},
		{"three-byte characters", "日日日日日日", 10, "日日"},
		{"only halves are left of one character", "🌍🌍", 4, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, c.want, headtail.Cut(c.text, c.limit))
		})
	}
}

func FuzzCut(f *testing.F) {
	f.Add("a🌍b🌎c", 5)
	f.Add("\xff\xfe\x80\x80\x80", 3)
	f.Fuzz(func(t *testing.T, text string, limit int) {
		got := headtail.Cut(text, limit)
		if len(text) <= limit {
			assert.Equal(t, text, got)
			return
		}
		assert.LessOrEqual(t, len(got), max(limit, 0))
		if !utf8.ValidString(text) {
			return
		}
		assert.True(t, utf8.ValidString(got))
		if limit > 0 {
			assert.GreaterOrEqual(t, len(got), limit-2*(utf8.UTFMax-1), "only halved characters are lost")
			// What is kept is a prefix followed by a suffix.
			common := 0
			for common < len(got) && text[common] == got[common] {
				common++
			}
			assert.True(t, strings.HasSuffix(text, got[common:]))
		}
	})
}
