package match

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/evalfleet/evalfleet/pkg/goldentest/corpus"
)

// text compares a recorded text with a value of any kind, since some whole-text markers represent other kinds.
func (c *comparison) text(want string, got any) bool {
	if equal, isMarker := c.wholeMarker(want, got); isMarker {
		return equal
	}
	text, ok := got.(string)
	if !ok {
		return false
	}
	parts := parse(want)
	if c.rules.anyLines && strings.Contains(want, "\n") {
		return equalLines(parts, text)
	}
	return c.bound.match(parts, text)
}

// wholeMarker compares where want is one of the markers that are a whole text.
func (c *comparison) wholeMarker(want string, got any) (equal, isMarker bool) {
	text, isText := got.(string)
	switch want {
	case "<time>":
		_, isNumber := got.(number)
		return isNumber || (isText && !blank(text)), true
	case "<text>", "<reason>":
		return isText && !blank(text), true
	case "<empty>":
		return got == nil || (isText && text == ""), true
	case "<id>":
		return isText && text != "", true
	case "<new>", "<new-id>":
		return isText && c.fresh(text), true
	}
	if !strings.HasPrefix(want, "<") || !strings.HasSuffix(want, ">") {
		return false, false
	}
	inner := want[1 : len(want)-1]
	if strings.ContainsAny(inner, "<> ") {
		return false, false
	}
	if prefix, ok := strings.CutPrefix(inner, "id:"); ok {
		return isText && len(text) > len(prefix) && strings.HasPrefix(text, prefix), true
	}
	if strings.HasPrefix(inner, "new:") {
		return isText && c.fresh(text), true
	}
	if strings.HasPrefix(inner, messageMarker) {
		return isText && c.bound.bindOnly(want, text), true
	}
	return false, false
}

func blank(text string) bool { return strings.TrimSpace(text) == "" }

func (c *comparison) fresh(id string) bool {
	return id != "" && !slices.Contains(c.rules.known, id)
}

// equalLines compares the lines as a set with repetitions. Leading markers are a header before the first line.
func equalLines(want []part, got string) bool {
	header := want
	if i := slices.IndexFunc(want, func(p part) bool { return p.kind == literalPart }); i >= 0 {
		header = want[:i]
		if i != len(want)-1 {
			return false
		}
	}
	wanted := []string{}
	if len(header) < len(want) {
		wanted = strings.SplitAfter(want[len(header)].literal, "\n")
	}
	lines := strings.SplitAfter(got, "\n")
	if len(wanted) > len(lines) {
		return false
	}
	body := lines[len(lines)-len(wanted):]
	return slices.Equal(sortedLines(wanted), sortedLines(body)) &&
		bindings{}.match(header, strings.Join(lines[:len(lines)-len(wanted)], ""))
}

// sortedLines sorts without the line breaks, so that a last line that lacks one may move.
func sortedLines(lines []string) []string {
	sorted := make([]string, len(lines))
	for i, line := range lines {
		sorted[i] = strings.TrimSuffix(line, "\n")
	}
	slices.Sort(sorted)
	return sorted
}

// long compares with a long text. Runs give the whole text, with its markers; without runs the two ends are known, and
// a marker that is cut at an end is ignored with everything beyond it.
func (c *comparison) long(want map[string]any, got any) bool {
	text, ok := got.(string)
	if !ok {
		return false
	}
	if whole, ok := corpus.LongText(want); ok {
		if !c.bound.match(parse(whole), text) {
			return false
		}
	} else {
		head, _ := want["head"].(string)
		tail, _ := want["tail"].(string)
		if head == "" && tail == "" && want["sha256"] == nil {
			return false
		}
		head, tail = cutOpenMarker(head), cutClosedMarker(tail)
		if !c.bound.match(append(parse(head), part{kind: openPart}), text) ||
			!c.bound.match(append([]part{{kind: openPart}}, parse(tail)...), text) {
			return false
		}
	}
	return c.measure(want["bytes"], len(text)) && c.measure(want["chars"], utf8.RuneCountInString(text)) &&
		(want["sha256"] == nil || want["sha256"] == hash(text))
}

func (c *comparison) measure(want any, got int) bool {
	if want == nil {
		return true
	}
	size, ok := want.(number)
	if !ok {
		return false
	}
	n, err := size.Int64()
	return err == nil && n == int64(got)
}

func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// cutOpenMarker drops a prose marker at the end of a head that the cut left without its closing bracket.
func cutOpenMarker(head string) string {
	i := strings.LastIndex(head, "<prose")
	if i < 0 {
		return head
	}
	if _, length := parseMarker(head[i:]); length == 0 {
		return head[:i]
	}
	return head
}

// cutClosedMarker drops the rest of a prose marker at the start of a tail, which ends the parameters: `}>`.
func cutClosedMarker(tail string) string {
	end := strings.Index(tail, "}>")
	open := strings.Index(tail, "<prose")
	if end >= 0 && (open < 0 || end < open) {
		return tail[end+len("}>"):]
	}
	return tail
}
