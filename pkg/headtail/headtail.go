// Package headtail shortens text by leaving out its middle.
package headtail

import "unicode/utf8"

// Cut returns text if it is at most limit bytes long, else its first limit/2 bytes and its last limit-limit/2 bytes
// without the middle. A character that the cut would split is omitted, so that valid UTF-8 stays valid and the result
// may be a few bytes shorter than limit. A limit of 0 or less returns an empty text.
func Cut(text string, limit int) string { return Mark(text, limit, "") }

// Mark is [Cut], with a marker in place of the middle. The marker is not part of the limit.
func Mark(text string, limit int, marker string) string {
	if len(text) <= limit {
		return text
	}
	if limit <= 0 {
		return marker
	}
	head, tail := text[:limit/2], text[len(text)-(limit-limit/2):]
	return trimEnd(head) + marker + trimStart(tail)
}

// trimEnd drops the beginning of a character that ends beyond s.
func trimEnd(s string) string {
	for n := 1; n < utf8.UTFMax && n <= len(s); n++ {
		if last := s[len(s)-n:]; utf8.RuneStart(last[0]) {
			if !utf8.FullRuneInString(last) {
				return s[:len(s)-n]
			}
			break
		}
	}
	return s
}

// trimStart drops the rest of a character that began before s.
func trimStart(s string) string {
	for n := 0; n < utf8.UTFMax-1 && len(s) > 0 && !utf8.RuneStart(s[0]); n++ {
		s = s[1:]
	}
	return s
}
