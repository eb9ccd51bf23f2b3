package pytext

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode"

	"github.com/evalfleet/evalfleet/pkg/json/orderedjson"
)

// Str converts a JSON value, as orderedjson decodes it, to text like Python's str(): a string as it is, `True`, `None`,
// `42`, `0.5`, and lists and objects in the notation of their repr.
func Str(value any) string {
	if s, ok := value.(string); ok {
		return s
	}
	var b strings.Builder
	writeRepr(&b, value)
	return b.String()
}

func writeRepr(b *strings.Builder, value any) {
	switch v := value.(type) {
	case nil:
		b.WriteString("None")
	case bool:
		if v {
			b.WriteString("True")
		} else {
			b.WriteString("False")
		}
	case json.Number:
		b.WriteString(numberText(v.String()))
	case string:
		writeQuoted(b, v)
	case []any:
		b.WriteByte('[')
		for i, item := range v {
			if i > 0 {
				b.WriteString(", ")
			}
			writeRepr(b, item)
		}
		b.WriteByte(']')
	case *orderedjson.Object:
		b.WriteByte('{')
		separator := ""
		for name, member := range v.All() {
			b.WriteString(separator)
			writeQuoted(b, name)
			b.WriteString(": ")
			writeRepr(b, member)
			separator = ", "
		}
		b.WriteByte('}')
	}
}

// numberText keeps the digits of an integer of any size; a literal with a point or exponent is a float.
func numberText(literal string) string {
	if !strings.ContainsAny(literal, ".eE") {
		if literal == "-0" {
			return "0"
		}
		return literal
	}
	// A literal beyond the range of float64 is infinite, as in Python.
	f, _ := strconv.ParseFloat(literal, 64)
	return FormatFloat(f)
}

// writeQuoted writes s in single quotes, or in double ones when it holds single quotes and no double ones.
func writeQuoted(b *strings.Builder, s string) {
	quote := '\''
	if strings.Contains(s, "'") && !strings.Contains(s, `"`) {
		quote = '"'
	}
	b.WriteRune(quote)
	for _, r := range s {
		switch {
		case r == quote || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\r':
			b.WriteString(`\r`)
		case r == '\t':
			b.WriteString(`\t`)
		case unicode.IsPrint(r):
			b.WriteRune(r)
		case r < 0x100:
			fmt.Fprintf(b, `\x%02x`, r)
		case r < 0x10000:
			fmt.Fprintf(b, `\u%04x`, r)
		default:
			fmt.Fprintf(b, `\U%08x`, r)
		}
	}
	b.WriteRune(quote)
}
