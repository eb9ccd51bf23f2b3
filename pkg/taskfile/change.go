package taskfile

import (
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/evalfleet/evalfleet/pkg/yamlnode"
)

// Change sets one value of a task file before it is read.
type Change struct {
	path  []string
	value *yaml.Node
	text  string
}

// ParseChange reads `key.key=value`. The value is YAML: `samples.limit=5`, `tags=[a, b]`, `dataset=other.jsonl`.
func ParseChange(text string) (Change, error) {
	path, value, ok := strings.Cut(text, "=")
	if !ok || path == "" || strings.Contains("."+path+".", "..") {
		return Change{}, fmt.Errorf("%q changes nothing; write key=value, such as samples.limit=5", text)
	}
	n, err := parseValue(value)
	if err != nil {
		return Change{}, fmt.Errorf("%q: %w", text, err)
	}
	return Change{path: strings.Split(path, "."), value: n, text: text}, nil
}

// parseValue reads YAML from outside the file, so that its nodes have no lines.
func parseValue(text string) (*yaml.Node, error) {
	n, err := yamlnode.Parse([]byte(text))
	if err != nil {
		return nil, err
	}
	if n == nil {
		return textNode(""), nil
	}
	unplace(n)
	return n, nil
}

func unplace(n *yaml.Node) {
	n.Line = 0
	for _, c := range n.Content {
		unplace(c)
	}
}

// ChangeError is the error for what a change sets.
type ChangeError struct {
	// Index is the change's place among the changes.
	Index int
	err   error
}

// Error implements error.
func (e *ChangeError) Error() string { return e.err.Error() }

// Unwrap returns the error itself.
func (e *ChangeError) Unwrap() error { return e.err }

// mark notes in the nodes of a change which one set them: -1 as the line is the first.
func mark(n *yaml.Node, index int) *yaml.Node {
	n.Line = -1 - index
	for _, c := range n.Content {
		mark(c, index)
	}
	return n
}

// apply lays the change over a task file. Index is its place among the changes.
func (c Change) apply(n *yaml.Node, index int) error {
	for i, name := range c.path {
		if n.Kind != yaml.MappingNode {
			return &ChangeError{index, fmt.Errorf("cannot set %s: %s is no map", c.text, strings.Join(c.path[:i], "."))}
		}
		last := i == len(c.path)-1
		at := -1
		for k := 0; k+1 < len(n.Content); k += 2 {
			if n.Content[k].Value == name {
				at = k + 1
			}
		}
		if at < 0 {
			n.Content = append(n.Content, mark(textNode(name), index), mark(&yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}, index))
			at = len(n.Content) - 1
		}
		if last {
			n.Content[at] = mark(c.value, index)
			return nil
		}
		n = resolved(n.Content[at])
	}
	return nil
}
