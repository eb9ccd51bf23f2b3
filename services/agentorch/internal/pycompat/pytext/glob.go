package pytext

import "unicode/utf8"

// MatchGlob reports whether name as a whole matches a shell pattern, like Python's fnmatchcase: `*` any text, `?` one
// character, `[seq]` and `[!seq]` one character in or not in seq, where `a-z` is a range. Only brackets escape a
// special character; an unclosed bracket matches itself. Unlike in path.Match, slashes are not special.
func MatchGlob(pattern, name string) bool {
	// star and retry are the positions to resume at after a mismatch: the pattern behind the last `*`, and the name
	// with one more character matched by it.
	star, retry := -1, 0
	p, n := 0, 0
	for n < len(name) {
		if p < len(pattern) && pattern[p] == '*' {
			p++
			star, retry = p, n
			continue
		}
		if width, next, ok := matchOne(pattern[p:], name[n:]); ok {
			p += next
			n += width
			continue
		}
		if star < 0 {
			return false
		}
		_, width := utf8.DecodeRuneInString(name[retry:])
		retry += width
		p, n = star, retry
	}
	for p < len(pattern) && pattern[p] == '*' {
		p++
	}
	return p == len(pattern)
}

// matchOne matches the first character of name with the first element of pattern, which is not `*`, and returns the
// bytes that each takes.
func matchOne(pattern, name string) (width, next int, ok bool) {
	if pattern == "" {
		return 0, 0, false
	}
	r, width := utf8.DecodeRuneInString(name)
	switch pattern[0] {
	case '?':
		return width, 1, true
	case '[':
		if end := classEnd(pattern); end > 0 {
			return width, end + 1, inClass(pattern[1:end], r)
		}
	}
	want, next := utf8.DecodeRuneInString(pattern)
	return width, next, r == want
}

// classEnd returns the index of the bracket that closes the class at the start of pattern, or 0. A bracket right after
// the opening is a member.
func classEnd(pattern string) int {
	i := 1
	if i < len(pattern) && pattern[i] == '!' {
		i++
	}
	for i++; i < len(pattern); i++ {
		if pattern[i] == ']' {
			return i
		}
	}
	return 0
}

// inClass reports whether r is in the class with the text between the brackets. A range that runs backwards is empty.
func inClass(class string, r rune) bool {
	negated := class[0] == '!' && len(class) > 1
	if negated {
		class = class[1:]
	}
	runes := []rune(class)
	found := false
	for i := 0; i < len(runes); i++ {
		if i+2 < len(runes) && runes[i+1] == '-' {
			found = found || runes[i] <= r && r <= runes[i+2]
			i += 2
			continue
		}
		found = found || runes[i] == r
	}
	return found != negated
}
