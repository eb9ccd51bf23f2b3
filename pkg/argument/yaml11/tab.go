package yaml11

import (
	"strings"

	"go.yaml.in/yaml/v3"
)

// hasStrayTab reports whether text has a tab outside of quoted text, block text and comments. PyYAML takes no such tab,
// so that a script whose lines begin with tabs stays as it is, while go.yaml.in/yaml/v3 folds it into one line.
func hasStrayTab(text string, root *yaml.Node) bool {
	if !strings.Contains(text, "\t") {
		return false
	}
	lines := lineStarts(text)
	var scalars []*yaml.Node
	if root != nil {
		scalars = scalarsOf(root, nil)
	}
	at := 0
	for i, n := range scalars {
		start := offset(text, lines, n)
		end := len(text)
		switch {
		case n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle) != 0:
			start, end = quoted(text, start)
		case n.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0:
			start += strings.IndexByte(text[start:]+"\n", '\n')
			if i+1 < len(scalars) {
				end = max(start, lines[scalars[i+1].Line-1])
			}
		default:
			continue
		}
		if start > at && outsideComments(text[:start], at) {
			return true
		}
		at = max(at, end)
	}
	return outsideComments(text, at)
}

// outsideComments reports whether text has a tab from offset at on that is in no comment.
func outsideComments(text string, at int) bool {
	for i := at; i < len(text); i++ {
		switch {
		case text[i] == '\t':
			return true
		case text[i] == '#' && (i == 0 || text[i-1] == ' ' || text[i-1] == '\n' || text[i-1] == '\r'):
			line := strings.IndexAny(text[i:], "\r\n")
			if line < 0 {
				return false
			}
			i += line
		}
	}
	return false
}

// scalarsOf adds the scalars of a tree in the order of the text.
func scalarsOf(n *yaml.Node, all []*yaml.Node) []*yaml.Node {
	if n.Kind == yaml.ScalarNode {
		return append(all, n)
	}
	for _, child := range n.Content { // an alias has no content of its own
		all = scalarsOf(child, all)
	}
	return all
}

// lineStarts returns the offsets at which the lines of a text begin, by the line breaks of YAML 1.1.
func lineStarts(text string) []int {
	starts := []int{0}
	for i, r := range text {
		switch {
		case r == '\r' && strings.HasPrefix(text[i:], "\r\n"):
		case strings.ContainsRune("\r\n\u0085\u2028\u2029", r):
			starts = append(starts, i+len(string(r)))
		}
	}
	return starts
}

// offset is where a node begins. Columns count characters.
func offset(text string, lines []int, n *yaml.Node) int {
	at := len(text)
	if n.Line <= len(lines) {
		at = lines[n.Line-1]
	}
	column := 1
	for i := range text[at:] {
		if column == n.Column {
			return at + i
		}
		column++
	}
	return len(text)
}

// quoted returns where the quoted text begins that follows at, tags and anchors aside, and where it ends.
func quoted(text string, at int) (start, end int) {
	first := strings.IndexAny(text[at:], `"'`)
	if first < 0 {
		return len(text), len(text)
	}
	start = at + first
	quote := text[start]
	for i := start + 1; i < len(text); i++ {
		switch {
		case text[i] == '\\' && quote == '"':
			i++
		case text[i] == quote && quote == '\'' && strings.HasPrefix(text[i:], "''"):
			i++
		case text[i] == quote:
			return start, i + 1
		}
	}
	return start, len(text)
}
