package yaml11

import (
	"slices"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// hasStrayTab reports whether text has a tab outside of quoted text, block text and comments. PyYAML takes no such tab,
// so that a script whose lines begin with tabs stays as it is, while go.yaml.in/yaml/v3 folds it into one line.
func hasStrayTab(text string, root *yaml.Node) bool {
	if !strings.Contains(text, "\t") {
		return false
	}
	var nodes []*yaml.Node
	if root != nil {
		nodes = nodesOf(root, nil)
	}
	p := place{text: text, line: 1, column: 1}
	at := 0
	for i, n := range nodes {
		var start, end int
		switch {
		case n.Kind != yaml.ScalarNode:
			continue
		case n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle) != 0:
			p.advance(n.Line, n.Column)
			start, end = quoted(text, afterProperties(text, p.at))
		case n.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0:
			p.advance(n.Line, n.Column)
			start, end = endOfLine(text, afterProperties(text, p.at)), len(text)
			// A value that is left out has the line of its key, or one beyond the text.
			if next := slices.IndexFunc(nodes[i+1:], func(m *yaml.Node) bool { return m.Line > n.Line }); next >= 0 {
				p.advance(nodes[i+1+next].Line, 1)
				end = max(start, p.at)
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

// outsideComments reports whether text has a tab from offset at on that is in no comment. At at a comment may begin:
// the text begins there, a line, or what follows quoted text.
func outsideComments(text string, at int) bool {
	for i := at; i < len(text); i++ {
		switch {
		case text[i] == '\t':
			return true
		case text[i] == '#' && (i == at || text[i-1] == ' ' || text[i-1] == '\n' || text[i-1] == '\r'):
			i = endOfLine(text, i)
		}
	}
	return false
}

// nodesOf adds the nodes of a tree in the order of the text.
func nodesOf(n *yaml.Node, all []*yaml.Node) []*yaml.Node {
	all = append(all, n)
	for _, child := range n.Content { // an alias has no content of its own
		all = nodesOf(child, all)
	}
	return all
}

// endOfLine is the offset of the next line break from an offset on.
func endOfLine(text string, at int) int {
	if line := strings.IndexAny(text[at:], "\r\n"); line >= 0 {
		return at + line
	}
	return len(text)
}

// place is a place in a text, by its offset, and by its line and column, which begin with 1. Columns count characters,
// and lines end with the breaks of YAML 1.1.
type place struct {
	text             string
	at, line, column int
}

// advance moves to a line and column, or to the end of the text before it. It does not move back, so that all moves
// together read the text once.
func (p *place) advance(line, column int) {
	for p.at < len(p.text) && (p.line < line || p.line == line && p.column < column) {
		r, size := utf8.DecodeRuneInString(p.text[p.at:])
		p.at += size
		p.column++
		if isBreak(r) && !(r == '\r' && strings.HasPrefix(p.text[p.at:], "\n")) {
			p.line, p.column = p.line+1, 1
		}
	}
}

func isBreak(r rune) bool { return strings.ContainsRune("\r\n\u0085\u2028\u2029", r) }

// afterProperties returns where the value begins whose tag and anchor, if it has any, begin at at.
func afterProperties(text string, at int) int {
	for at < len(text) {
		switch text[at] {
		case ' ', '\t', '\r', '\n':
			at++
		case '#':
			at = endOfLine(text, at)
		case '!', '&':
			length := strings.IndexAny(text[at:], " \t\r\n")
			if length < 0 {
				return len(text)
			}
			at += length
		default:
			return at
		}
	}
	return at
}

// quoted returns where the quoted text that follows at begins and ends.
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
