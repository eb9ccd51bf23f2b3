package encode

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf8"
)

const hexDigits = "0123456789abcdef"

// escapes are the letters behind the backslash for bytes that have a short escape.
var escapes = [utf8.RuneSelf]byte{'"': '"', '\\': '\\', '\n': 'n', '\r': 'r', '\t': 't', '\b': 'b', '\f': 'f'}

// AppendText appends text as a JSON string, with no more escapes than JSON asks for. Bytes that are no UTF-8 become U+FFFD.
func AppendText(dst []byte, text string) []byte {
	dst = append(dst, '"')
	start := 0 // of what is not yet copied
	for i := 0; i < len(text); {
		i += plainPrefix(text[i:])
		if i == len(text) {
			break
		}
		c := text[i]
		if c < utf8.RuneSelf {
			dst = append(dst, text[start:i]...)
			if letter := escapes[c]; letter != 0 {
				dst = append(dst, '\\', letter)
			} else {
				dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&0xf])
			}
			i++
			start = i
			continue
		}
		r, size := utf8.DecodeRuneInString(text[i:])
		if r == utf8.RuneError && size == 1 {
			dst = append(append(dst, text[start:i]...), "\uFFFD"...)
			start = i + 1
		}
		i += size
	}
	dst = append(dst, text[start:]...)
	return append(dst, '"')
}

// plainPrefix returns how many bytes at the start of text are ASCII that needs no escape. It looks at eight bytes at once: prompts are
// mostly such text, and they are long.
func plainPrefix(text string) int {
	const (
		ones  = 0x0101010101010101
		highs = 0x8080808080808080
	)
	i := 0
	for ; i+8 <= len(text); i += 8 {
		word := binary.LittleEndian.Uint64([]byte(text[i : i+8]))
		quote := word ^ (ones * '"')
		slash := word ^ (ones * '\\')
		// A byte below 0x20, a quote, a backslash or one above 0x7f sets its highest bit. Borrows only reach bytes behind such a one, so the
		// first that is set is right.
		if found := (word | (word - ones*0x20) | (quote - ones) | (slash - ones)) & highs; found != 0 {
			return i + bits.TrailingZeros64(found)/8
		}
	}
	for ; i < len(text); i++ {
		if c := text[i]; c < 0x20 || c == '"' || c == '\\' || c >= utf8.RuneSelf {
			break
		}
	}
	return i
}
