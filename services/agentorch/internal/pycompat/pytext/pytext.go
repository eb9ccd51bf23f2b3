// Package pytext holds text operations with Python's definitions.
//
// Scores and datasets must come out as they do in evaluations that were written for Python: what counts as white space,
// what a word is, how letters fold, which texts are numbers and how a JSON value reads as text. Go's standard library
// answers several of these otherwise, so the answers live here, once. Nothing in this package keeps state; every
// function is safe for concurrent use.
package pytext

import (
	"strings"
	"unicode"

	"golang.org/x/text/cases"
	"golang.org/x/text/language"
)

// Punctuation is the ASCII punctuation of Python's string.punctuation.
const Punctuation = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"

// IsSpace reports whether Python's str.isspace holds for r. Beyond unicode.IsSpace that is the four information
// separators U+001C to U+001F.
func IsSpace(r rune) bool {
	return r >= 0x1c && r <= 0x1f || unicode.IsSpace(r)
}

// IsWord reports whether r belongs to a word, as `\w` of Python's re: a letter, a number of any kind or the underscore.
// Combining marks do not.
func IsWord(r rune) bool {
	return r == '_' || unicode.IsLetter(r) || unicode.IsNumber(r)
}

// Trim removes white space at both ends, as str.strip().
func Trim(s string) string { return strings.TrimFunc(s, IsSpace) }

// TrimPunctuation removes ASCII white space and ASCII punctuation at both ends.
func TrimPunctuation(s string) string { return strings.Trim(s, " \t\n\r\v\f"+Punctuation) }

// Fields splits s around runs of white space, as str.split().
func Fields(s string) []string { return strings.FieldsFunc(s, IsSpace) }

// Fold prepares s for a comparison that ignores case, as str.casefold(): full folding, so that ß becomes ss.
func Fold(s string) string {
	if isLowerASCII(s) {
		return s
	}
	return cases.Fold().String(s)
}

// Lower converts s to lower case, as str.lower().
func Lower(s string) string {
	if isLowerASCII(s) {
		return s
	}
	return cases.Lower(language.Und).String(s)
}

// isLowerASCII reports whether lowering or folding would leave s unchanged; it is a fast path.
func isLowerASCII(s string) bool {
	for i := range len(s) {
		if c := s[i]; c >= 0x80 || 'A' <= c && c <= 'Z' {
			return false
		}
	}
	return true
}
