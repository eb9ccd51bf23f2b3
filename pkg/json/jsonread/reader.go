package jsonread

import (
	"bytes"
	"encoding/binary"
	"slices"
	"sync"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/evalfleet/evalfleet/pkg/json/jsonscan"
)

// reader is a position in a document. Its methods fail on invalid JSON.
type reader struct {
	doc   []byte
	at    int
	depth int
	// scratch holds a text while it is decoded.
	scratch []byte
}

var readers = sync.Pool{New: func() any { return &reader{} }}

// mostKept bounds the scratch that is kept for later.
const mostKept = 1 << 20

func (r *reader) release() {
	r.doc = nil
	if cap(r.scratch) > mostKept {
		r.scratch = nil
	}
	readers.Put(r)
}

// next passes over blanks and returns the byte behind them, without passing over it; 0 at the end.
func (r *reader) next() byte {
	for ; r.at < len(r.doc); r.at++ {
		if c := r.doc[r.at]; c > ' ' || c != ' ' && c != '\n' && c != '\r' && c != '\t' {
			return c
		}
	}
	return 0
}

// ends reports whether nothing but blanks follows.
func (r *reader) ends() bool {
	r.next()
	return r.at == len(r.doc)
}

// take passes over a byte, if it is the next.
func (r *reader) take(c byte) bool {
	if r.next() != c || r.at == len(r.doc) {
		return false
	}
	r.at++
	return true
}

// word passes over a word, if it is the next.
func (r *reader) word(word string) bool {
	if r.next(); !bytes.HasPrefix(r.doc[r.at:], []byte(word)) {
		return false
	}
	r.at += len(word)
	return true
}

func (r *reader) null() bool { return r.word("null") }

// object reads an object; member reads the value of each member. The name is valid until then.
func (r *reader) object(member func(name []byte) bool) bool {
	if !r.enter('{') {
		return false
	}
	if r.take('}') {
		return r.leave()
	}
	for {
		if r.next() != '"' {
			return false
		}
		name, ok := r.inside()
		if !ok || !r.take(':') || !member(name) {
			return false
		}
		if r.take('}') {
			return r.leave()
		}
		if !r.take(',') {
			return false
		}
	}
}

// list reads a list; element reads each of its elements.
func (r *reader) list(element func() bool) bool {
	if !r.enter('[') {
		return false
	}
	if r.take(']') {
		return r.leave()
	}
	for {
		if !element() {
			return false
		}
		if r.take(']') {
			return r.leave()
		}
		if !r.take(',') {
			return false
		}
	}
}

func (r *reader) enter(bracket byte) bool {
	r.depth++
	return r.depth <= maxDepth && r.take(bracket)
}

func (r *reader) leave() bool {
	r.depth--
	return true
}

// raw passes over a value and returns it as it is written.
func (r *reader) raw() ([]byte, bool) {
	r.next()
	start := r.at
	ok := r.skip()
	return r.doc[start:r.at], ok
}

// skip passes over a value.
func (r *reader) skip() bool {
	switch r.next() {
	case '{':
		return r.object(func([]byte) bool { return r.skip() })
	case '[':
		return r.list(r.skip)
	case '"':
		return r.skipText()
	case 't':
		return r.word("true")
	case 'f':
		return r.word("false")
	case 'n':
		return r.null()
	default:
		_, ok := r.number()
		return ok
	}
}

// number passes over a number and returns it as it is written.
func (r *reader) number() ([]byte, bool) {
	r.next()
	start := r.at
	r.oneOf("-")
	switch {
	case r.oneOf("0"):
	case !r.digits():
		return nil, false
	}
	if r.oneOf(".") && !r.digits() {
		return nil, false
	}
	if r.oneOf("eE") {
		r.oneOf("+-")
		if !r.digits() {
			return nil, false
		}
	}
	return r.doc[start:r.at], true
}

// oneOf passes over one of some bytes, if it is the next.
func (r *reader) oneOf(set string) bool {
	for i := range len(set) {
		if r.at < len(r.doc) && r.doc[r.at] == set[i] {
			r.at++
			return true
		}
	}
	return false
}

// digits passes over at least one digit.
func (r *reader) digits() bool {
	start := r.at
	for r.at < len(r.doc) && '0' <= r.doc[r.at] && r.doc[r.at] <= '9' {
		r.at++
	}
	return r.at > start
}

// text reads a text.
func (r *reader) text() (string, bool) {
	inside, ok := r.inside()
	return string(inside), ok
}

// inside reads a text. Its result is a part of the document if the text has no escapes, and else valid until the next
// text is read.
//
// Most texts have neither escapes nor quotes within, which bytes.IndexByte finds out with vector instructions.
func (r *reader) inside() ([]byte, bool) {
	r.at++
	rest := r.doc[r.at:]
	end := bytes.IndexByte(rest, '"')
	if end < 0 {
		return nil, false
	}
	rest = rest[:end]
	if bytes.IndexByte(rest, '\\') >= 0 {
		return r.unquote()
	}
	if plain := jsonscan.Plain(rest); plain < end && (hasControl(rest[plain:]) || !utf8.Valid(rest[plain:])) {
		return r.unquote()
	}
	r.at += end + 1
	return rest, true
}

// hasControl reports whether a text has a byte below the blank, eight at once.
func hasControl(text []byte) bool {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	for ; len(text) >= 8; text = text[8:] {
		if word := binary.LittleEndian.Uint64(text); (word-ones*' ')&^word&highs != 0 {
			return true
		}
	}
	return slices.ContainsFunc(text, func(c byte) bool { return c < ' ' })
}

// skipText passes over a text.
func (r *reader) skipText() bool {
	r.at++
	for r.at < len(r.doc) {
		r.at += jsonscan.Plain(r.doc[r.at:])
		for stop := min(r.at+jsonscan.Stretch, len(r.doc)); r.at < stop; {
			switch jsonscan.KindOf(r.doc[r.at]) {
			case jsonscan.AsIs, jsonscan.Beyond:
				r.at++
			case '"':
				r.at++
				return true
			case '\\':
				_, size := escape(r.doc[r.at:])
				if size == 0 {
					return false
				}
				r.at += size
			default:
				return false
			}
		}
	}
	return false
}

// widest is the maximal number of bytes that replace one byte: those of U+FFFD for one that is not UTF-8.
const widest = len("\uFFFD")

// unquote reads the rest of a text into the scratch.
func (r *reader) unquote() ([]byte, bool) {
	to := r.scratch[:0]
	for r.at < len(r.doc) {
		plain := jsonscan.Plain(r.doc[r.at:])
		to = append(to, r.doc[r.at:r.at+plain]...)
		r.at += plain
		var ended, ok bool
		to, ended, ok = r.unquoteStretch(to)
		r.scratch = to
		if ended || !ok {
			return to, ok
		}
	}
	return nil, false
}

// unquoteStretch decodes the next bytes of a text one by one and appends the result.
func (r *reader) unquoteStretch(to []byte) (_ []byte, ended, ok bool) {
	const room = widest*jsonscan.Stretch + utf8.UTFMax
	d := len(to)
	if cap(to)-d < room {
		to = append(make([]byte, 0, 2*cap(to)+room), to...)
	}
	to = to[:d+room]
	doc, at := r.doc, r.at
	for stop := min(at+jsonscan.Stretch, len(doc)); at < stop; {
		c := doc[at]
		kind := jsonscan.KindOf(c)
		if kind == jsonscan.AsIs {
			to[d] = c
			d++
			at++
			continue
		}
		switch kind {
		case '\\':
			if at+1 < len(doc) && jsonscan.Unescape(doc[at+1]) != 0 {
				to[d] = jsonscan.Unescape(doc[at+1])
				d++
				at += 2
				continue
			}
			char, size := escape(doc[at:])
			if size == 0 {
				return nil, false, false
			}
			d += utf8.EncodeRune(to[d:], char)
			at += size
		case jsonscan.Beyond:
			char, size := utf8.DecodeRune(doc[at:])
			d += utf8.EncodeRune(to[d:], char)
			at += size
		case '"':
			r.at = at + 1
			return to[:d], true, true
		default:
			return nil, false, false
		}
	}
	r.at = at
	return to[:d], false, true
}

// escape decodes the escape at the start of b. Half of a surrogate pair becomes U+FFFD. size is 0 for an invalid
// escape.
func escape(b []byte) (char rune, size int) {
	if len(b) > 1 && jsonscan.Unescape(b[1]) != 0 {
		return rune(jsonscan.Unescape(b[1])), 2
	}
	char, ok := hex4(b)
	if !ok {
		return 0, 0
	}
	size = len(`\u0000`)
	if utf16.IsSurrogate(char) {
		low, _ := hex4(b[size:])
		if char = utf16.DecodeRune(char, low); char != unicode.ReplacementChar {
			size *= 2
		}
	}
	return char, size
}

// hex4 decodes an escape of the form \u0000.
func hex4(b []byte) (char rune, ok bool) {
	if len(b) < len(`\u0000`) || b[0] != '\\' || b[1] != 'u' {
		return 0, false
	}
	for _, c := range b[2:6] {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		char = char<<4 | rune(c)
	}
	return char, true
}
