package encode

import (
	"slices"
	"unicode/utf8"

	"github.com/evalfleet/evalfleet/pkg/jsonscan"
)

const hexDigits = "0123456789abcdef"

// What a byte of a text becomes: one of these, or a backslash and a letter.
const (
	asIs    = 0
	control = 1 // \u00XX
	beyond  = 2 // a part of a character beyond ASCII, or no UTF-8
)

// kinds are what becomes of each byte.
var kinds = func() (kinds [256]byte) {
	for c := range kinds {
		switch {
		case c < ' ':
			kinds[c] = control
		case c >= utf8.RuneSelf:
			kinds[c] = beyond
		}
	}
	for c, letter := range map[byte]byte{'"': '"', '\\': '\\', '\n': 'n', '\r': 'r', '\t': 't', '\b': 'b', '\f': 'f'} {
		kinds[c] = letter
	}
	return kinds
}()

const (
	// stretch is how many bytes are looked at one by one behind one that needs an escape: others are likely to follow, as in code or JSON that a text holds.
	stretch = 64
	// widest is what a byte becomes at most.
	widest = len(`\u0000`)
)

// AppendText appends text as a JSON string, with no more escapes than JSON asks for. Bytes that are no UTF-8 become U+FFFD.
func AppendText(dst []byte, text string) []byte {
	dst = append(dst, '"')
	for {
		n := jsonscan.Plain(text)
		dst = append(dst, text[:n]...)
		if text = text[n:]; text == "" {
			return append(dst, '"')
		}
		n = min(stretch, len(text))
		for n < len(text) && !utf8.RuneStart(text[n]) && n < stretch+utf8.UTFMax {
			n++ // A character is not parted.
		}
		dst = appendStretch(dst, text[:n])
		text = text[n:]
	}
}

// appendStretch appends the inside of a JSON string byte by byte.
func appendStretch(dst []byte, text string) []byte {
	at := len(dst)
	dst = slices.Grow(dst, widest*len(text))
	dst = dst[:at+widest*len(text)]
	for i := 0; i < len(text); {
		c := text[i]
		switch kind := kinds[c]; kind {
		case asIs:
			dst[at] = c
			at++
			i++
		case control:
			at += copy(dst[at:], `\u00`)
			dst[at], dst[at+1] = hexDigits[c>>4], hexDigits[c&0xf]
			at += 2
			i++
		case beyond:
			r, size := utf8.DecodeRuneInString(text[i:])
			at += utf8.EncodeRune(dst[at:], r) // U+FFFD for what is no UTF-8
			i += size
		default:
			dst[at], dst[at+1] = '\\', kind
			at += 2
			i++
		}
	}
	return dst[:at]
}
