package jsonscan

import "unicode/utf8"

// Kind is the class of a byte within a text: AsIs, Beyond, Control, or else the letter that represents it after a
// backslash, such as 'n' for a line break. A quote and a backslash represent themselves.
type Kind uint8

// Kinds that are no letters.
const (
	// AsIs is ASCII that needs no escape.
	AsIs Kind = iota
	// Control is a byte below the blank that has no letter.
	Control
	// Beyond is a part of a character beyond ASCII, or no UTF-8.
	Beyond
)

// KindOf returns the class of a byte.
func KindOf(c byte) Kind { return textKinds[c] }

// Unescape returns the byte that a letter after a backslash represents; zero if it represents none by itself.
func Unescape(letter byte) byte { return letters[letter] }

// Stretch is the number of bytes to inspect one by one after Plain has stopped, before it is called again: more bytes
// that are not plain are likely to follow, as in code or in JSON within a text.
const Stretch = 64

var letters = [256]byte{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

var textKinds = func() (kinds [256]Kind) {
	for c := range kinds {
		switch {
		case c < ' ':
			kinds[c] = Control
		case c >= utf8.RuneSelf:
			kinds[c] = Beyond
		}
	}
	for letter, c := range letters {
		if c != 0 && c != '/' {
			kinds[c] = Kind(letter)
		}
	}
	return kinds
}()
