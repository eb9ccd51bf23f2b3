// Package number finds the numbers in a model's answer and compares them, for scorers that match by value rather than
// by letter.
//
// People and models write one number in many ways: `$1,234.00`, `**42**`, `−5`, `1½`, `10²`, `四十二`, `٤٢`. Parse reads
// them; Normalize writes a number in the one form in which two are compared, five significant digits, so that
// 3.14159265 equals 3.1416 and 123456 equals 123457. Percent signs and units are never dropped: `60%` may mean 60 or
// 0.6, so it is no number. Everything here is pure and safe for concurrent use.
package number

import (
	"math"
	"strconv"
	"strings"

	"github.com/evalfleet/evalfleet/services/agentorch/internal/pycompat/pytext"
)

// formatting are the marks that currencies, thousands and Markdown put around and into numbers.
const formatting = "$,£€*_"

// enclosing is the punctuation of sentences that may surround a number. It excludes marks that change the meaning of a
// number (`<`, `~`, `+`, `%`).
const enclosing = "!?:;()[]{}'\"`"

// StripFormatting removes currency signs, thousands separators and emphasis everywhere in s, with the backslash before
// one (`\$20`), and every full stop that no digit follows.
func StripFormatting(s string) string {
	var b strings.Builder
	runes := []rune(s)
	for i, r := range runes {
		if strings.ContainsRune(formatting, r) {
			continue
		}
		if r == '\\' && i+1 < len(runes) && strings.ContainsRune(formatting, runes[i+1]) {
			continue
		}
		b.WriteRune(r)
	}
	runes = []rune(b.String())
	b.Reset()
	for i, r := range runes {
		if r == '.' {
			if i+1 == len(runes) {
				continue
			}
			if _, ok := pytext.Digit(runes[i+1]); !ok {
				continue
			}
		}
		b.WriteRune(r)
	}
	return b.String()
}

// Parse reads a word as a finite number, after removing the punctuation of sentences around it.
func Parse(word string) (float64, bool) { return ParseBare(strings.Trim(word, enclosing)) }

// ParseBare reads text as a finite number and removes nothing but white space around it: plain floats first, then the
// notations of other scripts.
func ParseBare(text string) (float64, bool) {
	if f, ok := pytext.ParseFinite(text); ok {
		return f, true
	}
	f, ok := parseSymbols(text)
	if !ok || math.IsInf(f, 0) || math.IsNaN(f) {
		return 0, false
	}
	return f, true
}

// Normalize writes f with five significant digits. Minus zero stays `-0`.
func Normalize(f float64) string { return strconv.FormatFloat(f, 'g', 5, 64) }

// All returns the numbers among the words of s, in order.
func All(s string) []float64 {
	var found []float64
	for _, word := range pytext.Fields(s) {
		if f, ok := Parse(word); ok {
			found = append(found, f)
		}
	}
	return found
}
