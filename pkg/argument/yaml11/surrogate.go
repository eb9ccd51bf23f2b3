package yaml11

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf16"
)

// surrogates finds escaped surrogates, a pair where there is one, and skips escaped backslashes.
var surrogates = regexp.MustCompile(`\\\\|(?i:\\u(d[89ab][0-9a-f]{2})\\u(d[c-f][0-9a-f]{2})|\\u(d[89a-f][0-9a-f]{2}))`)

// withoutSurrogates replaces escaped surrogate pairs, which JSON has and YAML does not, with the one character that
// they mean. Half a pair becomes U+FFFD.
func withoutSurrogates(text string) string {
	return surrogates.ReplaceAllStringFunc(text, func(found string) string {
		halves := strings.Split(strings.ToLower(found), `\u`)[1:]
		switch len(halves) {
		case 0:
			return found
		case 1:
			return `\uFFFD`
		}
		return fmt.Sprintf(`\U%08X`, utf16.DecodeRune(half(halves[0]), half(halves[1])))
	})
}

// half reads four hexadecimal digits.
func half(digits string) rune {
	n, _ := strconv.ParseUint(digits, 16, 16) // The pattern has checked them.
	return rune(n)
}
