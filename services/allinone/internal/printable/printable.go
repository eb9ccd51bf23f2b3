// Package printable removes terminal control sequences from a text. Text from other parties (names of tasks and
// samples, messages of servers, outputs of models and programs) may contain them. All output of the command line for
// people uses this package; JSON and forwarded data (the answer in a pipe, the output of a program in a sandbox) does
// not.
package printable

import "strings"

// Text returns text without control characters; line breaks and tabs stay.
func Text(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return r
		case r == '\r':
			return -1
		case r < 0x20 || r >= 0x7f && r < 0xa0, // of C0 and C1, which begin escape sequences
			r == '\u2028' || r == '\u2029',                                 // line and paragraph separators
			r >= '\u202a' && r <= '\u202e', r >= '\u2066' && r <= '\u2069': // changes of the direction of writing
			return '·'
		}
		return r
	}, strings.ToValidUTF8(text, "·"))
}

// Line is Text on one line.
func Line(text string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' {
			return ' '
		}
		return r
	}, Text(text))
}
