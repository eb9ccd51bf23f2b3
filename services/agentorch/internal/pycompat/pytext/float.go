package pytext

import (
	"math"
	"strconv"
	"strings"
	"unicode"
)

// ParseFloat reads s as Python's float() does: white space around it other than separators of records, decimal digits
// of any script, single underscores between digits, and `inf`, `infinity` and `nan` in any case with a sign.
// Hexadecimal floats are no numbers. A number too large is infinite.
func ParseFloat(s string) (float64, bool) {
	text, ok := floatLiteral(strings.TrimFunc(s, func(r rune) bool { return IsSpace(r) && (r < 0x1c || 0x1f < r) }))
	if !ok {
		return 0, false
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil && !math.IsInf(f, 0) {
		return 0, false
	}
	return f, true
}

// ParseFinite is ParseFloat without the infinities and NaN.
func ParseFinite(s string) (float64, bool) {
	f, ok := ParseFloat(s)
	if !ok || math.IsInf(f, 0) || math.IsNaN(f) {
		return 0, false
	}
	return f, true
}

// floatLiteral rewrites a Python float text to one that strconv reads in the same way, and refuses texts that only
// strconv accepts.
func floatLiteral(s string) (string, bool) {
	switch strings.ToLower(strings.TrimLeft(s, "+-")) {
	case "inf", "infinity", "nan":
		// strconv takes no sign before nan; the sign of a NaN has no meaning.
		if strings.HasSuffix(strings.ToLower(s), "nan") {
			return "NaN", len(s) <= len("+nan")
		}
		return s, true
	}
	var b strings.Builder
	previous := rune(0)
	for _, r := range s {
		switch d, isDigit := Digit(r); {
		case isDigit:
			b.WriteByte(byte('0' + d))
			r = '0'
		case r == '_':
			if previous != '0' {
				return "", false
			}
		case previous == '_':
			return "", false
		case strings.ContainsRune("+-.eE", r):
			b.WriteRune(r)
		default:
			return "", false
		}
		previous = r
	}
	return b.String(), previous != '_'
}

// Digit returns the value of a decimal digit of any script, 0 to 9.
func Digit(r rune) (int, bool) {
	if '0' <= r && r <= '9' {
		return int(r - '0'), true
	}
	if r < 0x80 || !unicode.IsDigit(r) {
		return 0, false
	}
	// Decimal digits come in runs of ten that begin with a zero (Unicode Standard, section 4.6).
	for _, t := range unicode.Nd.R16 {
		if lo, hi := rune(t.Lo), rune(t.Hi); lo <= r && r <= hi {
			return int(r-lo) % 10, true
		}
	}
	for _, t := range unicode.Nd.R32 {
		if lo, hi := rune(t.Lo), rune(t.Hi); lo <= r && r <= hi {
			return int(r-lo) % 10, true
		}
	}
	return 0, false
}

// FormatFloat writes f as Python's repr(): the shortest text that reads back as f, with a decimal point or an exponent.
func FormatFloat(f float64) string {
	switch {
	case math.IsNaN(f):
		return "nan"
	case math.IsInf(f, 1):
		return "inf"
	case math.IsInf(f, -1):
		return "-inf"
	}
	scientific := strconv.FormatFloat(f, 'e', -1, 64)
	_, exponent, _ := strings.Cut(scientific, "e")
	if e, err := strconv.Atoi(exponent); err == nil && (e < -4 || e >= 16) {
		return scientific
	}
	plain := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(plain, ".") {
		plain += ".0"
	}
	return plain
}
