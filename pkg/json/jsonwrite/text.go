package jsonwrite

import (
	"slices"
	"unicode/utf8"

	"github.com/evalfleet/evalfleet/pkg/json/jsonscan"
)

const hexDigits = "0123456789abcdef"

// widest is the maximal encoded size of a byte.
const widest = len(`\u0000`)

// AppendText appends text as a JSON string, with only the escapes that JSON requires. Invalid UTF-8 becomes U+FFFD.
func AppendText(dst []byte, text string) []byte {
	dst = append(dst, '"')
	for {
		n := jsonscan.Plain(text)
		dst = append(dst, text[:n]...)
		if text = text[n:]; text == "" {
			return append(dst, '"')
		}
		n = min(jsonscan.Stretch, len(text))
		for n < len(text) && !utf8.RuneStart(text[n]) && n < jsonscan.Stretch+utf8.UTFMax {
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
		switch kind := jsonscan.KindOf(c); kind {
		case jsonscan.AsIs:
			dst[at] = c
			at++
			i++
		case jsonscan.Control:
			at += copy(dst[at:], `\u00`)
			dst[at], dst[at+1] = hexDigits[c>>4], hexDigits[c&0xf]
			at += 2
			i++
		case jsonscan.Beyond:
			r, size := utf8.DecodeRuneInString(text[i:])
			at += utf8.EncodeRune(dst[at:], r) // U+FFFD for invalid UTF-8
			i += size
		default:
			dst[at], dst[at+1] = '\\', byte(kind)
			at += 2
			i++
		}
	}
	return dst[:at]
}
