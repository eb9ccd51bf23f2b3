package choice

import (
	"regexp"
	"slices"
	"strings"
)

// Pieces of the expressions below. White space, digits and word characters are Python's, and so is it that the dotted
// and the dotless i count as letters when case does not matter.
const (
	space   = `[\s\v\x1c-\x1f\x85\p{Z}]*`
	label   = `answer` + space + `:` + space
	letter  = `a-z\x{130}\x{131}\p{Nd}`
	letters = `([` + letter + ` ,]+)`
	wrapped = space + `([` + letter + `][` + letter + ` ,]*?)` + space
)

var (
	// inDollars and inAsterisks are answers within the marks of mathematics and emphasis: $B$, **A, C**.
	inDollars   = regexp.MustCompile(`(?i)\$` + wrapped + `\$`)
	inAsterisks = regexp.MustCompile(`(?i)\*\*` + wrapped + `\*\*`)
	// inParentheses is one letter in parentheses after a colon, a comma or nothing: (A).
	inParentheses = regexp.MustCompile(`(?i)(^|[:,])(` + space + `)\(([` + letter + `])\)`)
	// afterParentheses matches the text that may follow such a letter.
	afterParentheses = regexp.MustCompile(`^` + space + `(?:[,.\n]|$)`)
	// ownLine is an answer that has a line for itself; anywhere is the lenient form, inside of other text.
	ownLine  = regexp.MustCompile(`(?im)^` + label + letters + space + `(?:$|\n|\.)`)
	anywhere = regexp.MustCompile(`(?i)` + label + letters + `(?:[^\p{L}\p{N}_]|$)`)
)

// Parse reads the options that a completion names in its last `ANSWER:` line and returns their positions among n
// options, in order. An answer on a line of its own takes precedence over one within other text. Case, a trailing full
// stop, emphasis and parentheses around a letter do not matter.
//
// Unless multiple is set, exactly one letter must be given. If it is set, letters may be separated by commas, spaces or
// `and`, or run together. A letter without an option voids the whole answer. Nil means that no option was named.
func Parse(completion string, n int, multiple bool) []int {
	text := inDollars.ReplaceAllString(completion, "$1")
	text = unwrapParentheses(inAsterisks.ReplaceAllString(text, "$1"))
	matches := ownLine.FindAllStringSubmatch(text, -1)
	if matches == nil {
		matches = anywhere.FindAllStringSubmatch(text, -1)
	}
	if matches == nil {
		return nil
	}
	answer := strings.ToUpper(strings.TrimSpace(matches[len(matches)-1][1]))
	if !multiple {
		named := nonEmpty(strings.Split(answer, ","))
		if len(named) != 1 {
			return nil
		}
		return positionsOf(named, n)
	}
	answer = strings.ReplaceAll(strings.ReplaceAll(answer, " AND ", ","), " ", "")
	if separated := nonEmpty(strings.Split(answer, ",")); allOptions(separated, n) {
		return positionsOf(separated, n)
	}
	return positionsOf(strings.Split(answer, ""), n)
}

// unwrapParentheses replaces (A) by A if only the end of an answer or the next one follows.
func unwrapParentheses(text string) string {
	var b strings.Builder
	last := 0
	for _, m := range inParentheses.FindAllStringSubmatchIndex(text, -1) {
		end := m[1]
		if !afterParentheses.MatchString(text[end:]) {
			continue
		}
		b.WriteString(text[last:m[5]])
		b.WriteString(text[m[6]:m[7]])
		last = end
	}
	b.WriteString(text[last:])
	return b.String()
}

func nonEmpty(tokens []string) []string {
	return slices.DeleteFunc(tokens, func(token string) bool { return token == "" })
}

// positionOf returns the position of the option that bears exactly this letter, or -1.
func positionOf(letter string, n int) int {
	i, err := Index(letter)
	if err != nil || i < 0 || i >= n || Letter(i) != letter {
		return -1
	}
	return i
}

func allOptions(named []string, n int) bool {
	return !slices.ContainsFunc(named, func(letter string) bool { return positionOf(letter, n) < 0 })
}

// positionsOf returns the distinct positions of letters in order, or nil when one of them is no option.
func positionsOf(named []string, n int) []int {
	if !allOptions(named, n) {
		return nil
	}
	var positions []int
	for _, letter := range named {
		positions = append(positions, positionOf(letter, n))
	}
	slices.Sort(positions)
	return slices.Compact(positions)
}
