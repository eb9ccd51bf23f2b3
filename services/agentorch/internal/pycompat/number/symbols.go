package number

import (
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/evalfleet/evalfleet/services/agentorch/internal/pycompat/pytext"
)

// The signs of a number or an exponent, and the Chinese words for them, which only precede a number.
const (
	minusSigns = "-−﹣－"
	plusSigns  = "+＋﹢"
	minusWords = "负負"
	plusWords  = "正"
)

// groupSeparators may separate digits and have no meaning.
const groupSeparators = ",，﹐、٬ \u00a0\u202f\u2009\u2007\u2008'’ʼ＇"

// decimalMarks are decimal points other than the full stop: the Arabic one and the full-width stop.
const decimalMarks = "٫．"

// parseSymbols reads a number in the notation of any script:
//
//	number   = sign* ( symbol | base [ exponent ] )
//	base     = ( chinese | digits ) [ fraction ] | fraction
//	exponent = [ ⁻ | ⁺ ] superscript digits
//
// where symbol is one character that is a number by itself (Ⅻ) and fraction one below 1 (½). The sign belongs to the
// base: -2² is 4.
func parseSymbols(s string) (float64, bool) {
	text, negative := takeSigns(s)
	if text == "" {
		return 0, false
	}
	sign := 1.0
	if negative {
		sign = -1
	}
	if f, ok := single(text); ok {
		return sign * f, true
	}
	base, exponent, hasExponent := splitExponent(text)
	f, ok := parseBase(base)
	if !ok {
		return 0, false
	}
	f *= sign
	if hasExponent {
		if f == 0 && exponent < 0 {
			return 0, false
		}
		f = math.Pow(f, exponent)
	}
	return f, true
}

// takeSigns removes all signs before a number. Two minus signs are a plus.
func takeSigns(s string) (rest string, negative bool) {
	rest = pytext.Trim(s)
	for rest != "" {
		r, size := utf8.DecodeRuneInString(rest)
		switch {
		case strings.ContainsRune(minusSigns+minusWords, r):
			negative = !negative
		case !strings.ContainsRune(plusSigns+plusWords, r):
			return rest, negative
		}
		rest = strings.TrimLeftFunc(rest[size:], pytext.IsSpace)
	}
	return "", negative
}

// single reads text that is one character.
func single(text string) (float64, bool) {
	runes := []rune(text)
	if len(runes) != 1 {
		return 0, false
	}
	return numeric(runes[0])
}

func isSeparator(r rune) bool { return pytext.IsSpace(r) || strings.ContainsRune(groupSeparators, r) }

// splitExponent splits superscript digits off the end of text. Superscripts with nothing before them are no exponent.
func splitExponent(text string) (base string, exponent float64, ok bool) {
	trimmed := []rune(strings.TrimRightFunc(text, isSeparator))
	start := len(trimmed)
	for start > 0 {
		if _, isSuperscript := superscript(trimmed[start-1]); !isSuperscript {
			break
		}
		start--
	}
	var digits strings.Builder
	for _, r := range trimmed[start:] {
		d, _ := superscript(r)
		digits.WriteByte(byte('0' + d))
	}
	if digits.Len() == 0 {
		return text, 0, false
	}
	sign := 1.0
	if start > 0 && (trimmed[start-1] == '⁻' || trimmed[start-1] == '⁺') {
		start--
		if trimmed[start] == '⁻' {
			sign = -1
		}
	}
	base = strings.TrimRightFunc(string(trimmed[:start]), pytext.IsSpace)
	value, err := strconv.ParseFloat(digits.String(), 64)
	if base == "" || err != nil {
		return text, 0, false
	}
	return base, sign * value, true
}

// parseBase reads a number without sign and exponent that may end in one fraction character.
func parseBase(s string) (float64, bool) {
	runes := []rune(s)
	at, fraction := -1, 0.0
	for i, r := range runes {
		if f, ok := numeric(r); ok && 0 < f && f < 1 {
			if at >= 0 {
				return 0, false
			}
			at, fraction = i, f
		}
	}
	if at < 0 {
		return parseWhole(s)
	}
	if strings.TrimFunc(string(runes[at+1:]), isSeparator) != "" {
		return 0, false
	}
	head := pytext.Trim(string(runes[:at]))
	if head == "" {
		return fraction, true
	}
	f, ok := parseWhole(head)
	return f + fraction, ok
}

// parseWhole reads Chinese numerals or digits of any script.
func parseWhole(s string) (float64, bool) {
	s = pytext.Trim(s)
	if strings.ContainsFunc(s, isChinese) {
		if f, ok := parseChinese(s); ok {
			return f, true
		}
	}
	if f, ok := parseDigits(s); ok {
		return f, true
	}
	return single(s)
}

// parseDigits reads digits of any script with group separators, one decimal mark and an exponent `e`.
//
// Of full stop and comma the last one is the decimal mark and the other groups. A comma alone is a decimal mark when
// one to three digits follow the last one.
func parseDigits(s string) (float64, bool) {
	mark := decimalMark(s)
	var b strings.Builder
	seenMark, seenExponent := false, false
	runes := []rune(s)
	for i := 0; i < len(runes); i++ {
		r := runes[i]
		d, isDigit := anyDigit(r)
		switch {
		case (r == 'e' || r == 'E') && !seenExponent:
			if b.Len() == 0 {
				return 0, false
			}
			seenExponent = true
			b.WriteByte('e')
			if i+1 < len(runes) && strings.ContainsRune(minusSigns, runes[i+1]) {
				b.WriteByte('-')
				i++
			} else if i+1 < len(runes) && strings.ContainsRune(plusSigns, runes[i+1]) {
				i++
			}
		case strings.ContainsRune(decimalMarks, r) || r == mark:
			if seenMark {
				return 0, false
			}
			seenMark = true
			b.WriteByte('.')
		case isSeparator(r) || mark == ',' && r == '.':
		case isDigit:
			b.WriteByte(byte('0' + d))
		default:
			return 0, false
		}
	}
	f, err := strconv.ParseFloat(b.String(), 64)
	return f, err == nil
}

// decimalMark returns the decimal mark in s, a full stop or a comma, or 0 if there is none.
func decimalMark(s string) rune {
	dot, comma := strings.LastIndexByte(s, '.'), strings.LastIndexByte(s, ',')
	if dot >= 0 || comma < 0 {
		if dot > comma {
			return '.'
		}
		if comma >= 0 {
			return ','
		}
		return 0
	}
	digits := 0
	for _, r := range s[comma+1:] {
		if _, ok := anyDigit(r); ok {
			digits++
		}
	}
	if 1 <= digits && digits <= 3 {
		return ','
	}
	return 0
}
