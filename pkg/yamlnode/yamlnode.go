// Package yamlnode parses untrusted YAML into a node tree that is safe to walk: the expansion of its aliases and merges
// is bounded, and no value contains itself. A walk over the tree needs no bounds of its own. The bounds are those of
// pkg/bound.
//
// The caller interprets the values.
package yamlnode

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"go.yaml.in/yaml/v3"

	"github.com/evalfleet/evalfleet/pkg/bound"
)

var (
	// ErrTooDeep is returned for a document that nests too deeply.
	ErrTooDeep = fmt.Errorf("the YAML nests deeper than %d levels", bound.YAMLDepth)
	// ErrCycle is returned for a document with a value that contains itself.
	ErrCycle = errors.New("the value contains itself")
	// ErrTooLarge is returned for a document that has, or unfolds to, too much.
	ErrTooLarge = errors.New("the YAML is too large")
)

// indicators are the characters of which one begins every value but the first. An omitted value has that of its key.
const indicators = "-?:,[{"

// Parse returns the value of a YAML document; nil if the text has none. It fails on text that is not YAML, on more than
// one document, and with ErrTooDeep, ErrCycle or ErrTooLarge on a document beyond a bound, which the message names with
// the line. Parse does not block: a text within the bounds takes a few seconds at most.
func Parse(text []byte) (*yaml.Node, error) {
	if len(text) > bound.YAMLBytes {
		return nil, fmt.Errorf("%w: %d bytes, more than %d", ErrTooLarge, len(text), bound.YAMLBytes)
	}
	places := 0
	for i := range len(indicators) {
		places += bytes.Count(text, []byte(indicators[i:i+1]))
	}
	if places > bound.YAMLIndicators {
		return nil, fmt.Errorf("%w: %d of the characters %s, more than %d", ErrTooLarge, places, indicators, bound.YAMLIndicators)
	}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	var document, second yaml.Node
	if err := decoder.Decode(&document); errors.Is(err, io.EOF) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	if err := decoder.Decode(&second); err == nil {
		return nil, fmt.Errorf("line %d: there is more than one YAML document; keep one", second.Line)
	} else if !errors.Is(err, io.EOF) {
		return nil, err
	}
	if len(document.Content) == 0 {
		return nil, nil
	}
	root := document.Content[0]
	c := checker{known: map[*yaml.Node]size{}}
	_, err := c.measure(root, 0)
	return root, err
}

// size is the expanded size of a value.
type size struct {
	nodes, depth, bytes int
	// keys are those of a map, or of the maps of a list that a map may merge.
	keys int
}

// checker measures each value once, however many aliases refer to it.
type checker struct {
	// known are the sizes of values that have an anchor. The size of a value that is being measured is zero.
	known map[*yaml.Node]size
}

// measure returns the size of n, which is below depth others. An alias only refers to a value that began before it, so
// the walk itself is never deeper than the text.
func (c *checker) measure(n *yaml.Node, depth int) (size, error) {
	if depth >= bound.YAMLDepth {
		return size{}, fmt.Errorf("line %d: %w", n.Line, ErrTooDeep)
	}
	if n.Kind == yaml.AliasNode {
		s := c.known[n.Alias]
		if s.nodes == 0 {
			return size{}, fmt.Errorf("line %d: *%s: %w", n.Line, n.Value, ErrCycle)
		}
		return s, within(n, depth, s)
	}
	if n.Anchor != "" {
		c.known[n] = size{}
	}
	s := size{nodes: 1, depth: 1, bytes: len(n.Value)}
	for i, child := range n.Content {
		inner, err := c.measure(child, depth+1)
		if err != nil {
			return size{}, err
		}
		s.nodes += inner.nodes
		s.bytes += inner.bytes
		s.depth = max(s.depth, inner.depth+1)
		switch {
		case n.Kind == yaml.SequenceNode:
			s.keys += inner.keys
		case i%2 == 1 && isMerge(n.Content[i-1]):
			s.keys += inner.keys
		case i%2 == 1:
			s.keys++
		}
		if err := within(n, depth, s); err != nil {
			return size{}, err
		}
	}
	if n.Anchor != "" {
		c.known[n] = s
	}
	return s, nil
}

// within returns an error unless a value of size s may be at the place of n.
func within(n *yaml.Node, depth int, s size) error {
	switch {
	case depth+s.depth > bound.YAMLDepth:
		return fmt.Errorf("line %d: %w", n.Line, ErrTooDeep)
	case s.nodes > bound.YAMLNodes:
		return fmt.Errorf("line %d: %w: it unfolds to more than %d values", n.Line, ErrTooLarge, bound.YAMLNodes)
	case s.bytes > bound.YAMLExpandedBytes:
		return fmt.Errorf("line %d: %w: it unfolds to more than %d bytes", n.Line, ErrTooLarge, bound.YAMLExpandedBytes)
	case n.Kind != yaml.SequenceNode && s.keys > bound.YAMLKeys:
		return fmt.Errorf("line %d: %w: a map has more than %d keys", n.Line, ErrTooLarge, bound.YAMLKeys)
	}
	return nil
}

// isMerge reports whether a map's key brings the members of other maps.
func isMerge(key *yaml.Node) bool { return key.Tag == "!!merge" || key.Value == "<<" }
