package match

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// bindings maps the markers of ids to the texts found so far.
type bindings map[string]string

// bindOnly binds the marker to text, or compares text with its binding. Two markers never have the same text.
func (b bindings) bindOnly(marker, text string) bool {
	if bound, ok := b[marker]; ok {
		return bound == text
	}
	if text == "" {
		return false
	}
	for other, bound := range b {
		if bound == text && strings.HasPrefix(other, "<"+messageMarker) {
			return false
		}
	}
	b[marker] = text
	return true
}

// match reports whether text consists of the parts in order, with a fitting text in place of each marker, and binds the
// ids.
//
// It takes for each literal its first position after the shortest fitting text of the markers before it. That is
// enough: a text that fits a marker still fits it when it grows to either side, so an earlier position never excludes a
// later one. A match is therefore linear in the text, whatever its content.
func (b bindings) match(parts []part, text string) bool {
	parts = b.fill(parts)
	var (
		pos     int
		loose   bool // the text between pos and the next literal belongs to the marker before it
		taken   = bindings{}
		pending string // the marker of the id that begins at from
		from    int
	)
	settle := func(end int) bool {
		if pending == "" {
			return true
		}
		before, again := taken[pending]
		taken[pending] = text[from:end]
		same := !again || before == taken[pending]
		pending = ""
		return same
	}
	for i, p := range parts {
		if p.kind == literalPart {
			at, ok := find(text, p.literal, pos, loose, i == len(parts)-1)
			if !ok || !settle(at) {
				return false
			}
			pos, loose = at+len(p.literal), false
			continue
		}
		end, ok := shortest(p, text[pos:])
		if !ok || !settle(pos) {
			return false
		}
		if p.kind == idPart {
			pending, from = p.name, pos
		}
		pos, loose = pos+end, true
	}
	if (!loose && pos != len(text)) || !settle(len(text)) {
		return false
	}
	maps.Copy(b, taken)
	return true
}

// fill puts the text of bound ids in place of their markers and joins neighbouring literals.
func (b bindings) fill(parts []part) []part {
	var filled []part
	for _, p := range parts {
		if text, ok := b[p.name]; ok && p.kind == idPart {
			p = part{kind: literalPart, literal: text}
		}
		if last := len(filled) - 1; p.kind == literalPart && last >= 0 && filled[last].kind == literalPart {
			filled[last].literal += p.literal
			continue
		}
		filled = append(filled, p)
	}
	return filled
}

// find returns the position of the literal: at pos, or, after a marker, at its first position from pos on; the last one
// at the end of the text.
func find(text, literal string, pos int, loose, last bool) (int, bool) {
	switch {
	case !loose:
		return pos, strings.HasPrefix(text[pos:], literal)
	case last:
		at := len(text) - len(literal)
		return at, at >= pos && strings.HasSuffix(text, literal)
	default:
		at := strings.Index(text[pos:], literal)
		return pos + at, at >= 0
	}
}

// shortest returns the length of the shortest beginning of text that fits the marker.
func shortest(p part, text string) (int, bool) {
	if p.kind == openPart {
		return 0, true
	}
	if p.kind == idPart {
		_, size := utf8.DecodeRuneInString(text)
		return size, size > 0
	}
	end := strings.IndexFunc(text, func(r rune) bool { return !unicode.IsSpace(r) })
	if end < 0 {
		return 0, false
	}
	_, size := utf8.DecodeRuneInString(text[end:])
	end += size
	for _, value := range p.values {
		contained, ok := endOf(value, text)
		if !ok {
			return 0, false
		}
		end = max(end, contained)
	}
	return end, true
}

// endOf returns the end of the first place where text contains the value of a marker.
func endOf(value any, text string) (int, bool) {
	switch value := value.(type) {
	case string:
		if plainNumber.MatchString(value) {
			return endOfNumber(value, text)
		}
		return endOfText(value, text)
	case number:
		return endOfNumber(string(value), text)
	case bool:
		if value {
			return endOfText("true", text)
		}
		return endOfText("false", text)
	case []any:
		return endOfAll(value, text)
	case map[string]any:
		return endOfAll(slices.Collect(maps.Values(value)), text)
	default: // null is ignored
		return 0, true
	}
}

func endOfAll(values []any, text string) (int, bool) {
	end := 0
	for _, value := range values {
		contained, ok := endOf(value, text)
		if !ok {
			return 0, false
		}
		end = max(end, contained)
	}
	return end, true
}

// endOfText finds a value that is not cut out of a longer number: AGENT-1 is not in AGENT-10.
func endOfText(value, text string) (int, bool) {
	if value == "" {
		return 0, true
	}
	for from := 0; ; {
		at := strings.Index(text[from:], value)
		if at < 0 {
			return 0, false
		}
		start, end := from+at, from+at+len(value)
		cut := (digitAt(text, start-1) && digitAt(text, start)) || (digitAt(text, end-1) && digitAt(text, end))
		if !cut {
			return end, true
		}
		from = start + 1
	}
}

func digitAt(text string, i int) bool {
	return i >= 0 && i < len(text) && text[i] >= '0' && text[i] <= '9'
}

// separators are the characters that may group the digits of a number.
const separators = `,._'’\x{a0}\x{202f}\x{2009}`

var plainNumber = regexp.MustCompile(`^-?[0-9]{1,100}(\.[0-9]{1,100})?$`)

// endOfNumber finds a number by its value: its digits in groups of three or not, with or without a fraction of zeros,
// and not as a part of a longer number.
func endOfNumber(value, text string) (int, bool) {
	if !plainNumber.MatchString(value) {
		return endOfText(value, text)
	}
	sign, digits := "", value
	if rest, ok := strings.CutPrefix(value, "-"); ok {
		sign, digits = "[-−]", rest
	}
	whole, fraction, _ := strings.Cut(digits, ".")
	var pattern strings.Builder
	pattern.WriteString(`(?:^|[^0-9` + separators + `]|(?:^|[^0-9])[` + separators + `])(` + sign)
	for i, digit := range whole {
		if i > 0 && (len(whole)-i)%3 == 0 {
			pattern.WriteString(`[` + separators + ` ]?`)
		}
		pattern.WriteRune(digit)
	}
	if fraction = strings.TrimRight(fraction, "0"); fraction != "" {
		pattern.WriteString(`\.` + fraction + `0*)`)
	} else {
		pattern.WriteString(`(?:\.0+)?)`)
	}
	pattern.WriteString(`(?:$|[^0-9` + separators + `]|[` + separators + `](?:$|[^0-9]))`)
	found := regexp.MustCompile(pattern.String()).FindStringSubmatchIndex(text)
	if found == nil {
		return 0, false
	}
	return found[3], true
}
