package command

import (
	"strings"
	"unicode/utf8"
)

// decode decodes bytes as UTF-8. Each maximal prefix of a character that is not continued, and each byte that begins no
// character, becomes one U+FFFD, as Unicode recommends (The Unicode Standard, §3.9, "substitution of maximal
// subparts").
func decode(bytes []byte) string {
	if utf8.Valid(bytes) {
		return string(bytes)
	}
	var b strings.Builder
	for len(bytes) > 0 {
		r, size := utf8.DecodeRune(bytes)
		if r == utf8.RuneError && size == 1 {
			size = broken(bytes)
		}
		b.WriteRune(r)
		bytes = bytes[size:]
	}
	return b.String()
}

// broken returns the length of the incomplete character that bytes start with, at least 1.
func broken(bytes []byte) int {
	size := 1
	for size < min(len(bytes), utf8.UTFMax-1) && !utf8.FullRune(bytes[:size+1]) {
		size++
	}
	return size
}
