// Package yaml11 converts a YAML document to JSON by the scalar rules of YAML 1.1: `yes` is true, `010` is 8, `12:30`
// is 750.
//
// Models sometimes send bare text where a tool call requires a JSON object, and parsers of YAML 1.1 have defined the
// meaning of such text. go.yaml.in/yaml/v3 parses the syntax; only its node tree is used, since its own values follow
// YAML 1.2. The meaning of plain text follows the patterns of https://yaml.org/type/, in the reading that PyYAML gave
// them: single letters are no booleans, and an exponent needs a point and a sign.
package yaml11

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/evalfleet/evalfleet/pkg/yamlnode"
)

// ToJSON parses one YAML document and returns it as compact JSON. Empty text is null. Keys keep their order; of equal
// keys the last value counts, at the place of the first. Keys that are not text become the JSON form of their value.
// Values that JSON lacks stay text as written: dates and times, binary, infinities and not-a-number.
//
// Surrogates that are escaped in quoted text are read as JSON reads them.
//
// It fails on text that is not YAML, on tabs outside of quoted text, block text and comments, on more than one
// document, on keys that are lists or maps, on tags outside the YAML 1.1 types, and with the errors of pkg/yamlnode on
// documents beyond its bounds.
func ToJSON(text string) (json.RawMessage, error) {
	document, err := toJSON(text)
	if err != nil && surrogates.MatchString(text) {
		return toJSON(withoutSurrogates(text))
	}
	return document, err
}

func toJSON(text string) (json.RawMessage, error) {
	n, err := yamlnode.Parse([]byte(text))
	if err != nil {
		return nil, err
	}
	if hasStrayTab(text, n) {
		return nil, errStrayTab
	}
	if n == nil {
		return json.RawMessage("null"), nil
	}
	var w writer
	if err := w.node(n); err != nil {
		return nil, err
	}
	return w.buf.Bytes(), nil
}

var errStrayTab = errors.New("a tab separates tokens")

// writer writes a node tree as JSON. yamlnode has bounded its expansion.
type writer struct{ buf bytes.Buffer }

func (w *writer) node(n *yaml.Node) error {
	switch n.Kind {
	case yaml.AliasNode:
		return w.node(n.Alias)
	case yaml.SequenceNode:
		return w.sequence(n)
	case yaml.MappingNode:
		return w.mapping(n)
	default:
		value, err := scalar(n)
		if err != nil {
			return err
		}
		w.buf.Write(value)
		return nil
	}
}

func (w *writer) sequence(n *yaml.Node) error {
	if !tagged(n, "!!seq", "!!omap", "!!pairs") {
		return unknownTag(n)
	}
	w.buf.WriteByte('[')
	for i, item := range n.Content {
		if i > 0 {
			w.buf.WriteByte(',')
		}
		if err := w.node(item); err != nil {
			return err
		}
	}
	w.buf.WriteByte(']')
	return nil
}

func (w *writer) mapping(n *yaml.Node) error {
	if !tagged(n, "!!map", "!!set") {
		return unknownTag(n)
	}
	var members fields
	if err := w.collect(&members, n); err != nil {
		return err
	}
	w.buf.WriteByte('{')
	for i, name := range members.names {
		if i > 0 {
			w.buf.WriteByte(',')
		}
		w.buf.Write(quote(name))
		w.buf.WriteByte(':')
		if err := w.node(members.values[name]); err != nil {
			return err
		}
	}
	w.buf.WriteByte('}')
	return nil
}

// fields are the members of a map in the order of their first appearance.
type fields struct {
	names  []string
	values map[string]*yaml.Node
}

func (f *fields) set(name string, value *yaml.Node) {
	if f.values == nil {
		f.values = map[string]*yaml.Node{}
	}
	if _, known := f.values[name]; !known {
		f.names = append(f.names, name)
	}
	f.values[name] = value
}

// collect adds the members of n to f. The members of a merge key (`<<`) come first, so that n's own members replace
// them.
func (w *writer) collect(f *fields, n *yaml.Node) error {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if isMerge(n.Content[i]) {
			if err := w.merge(f, n.Content[i+1]); err != nil {
				return err
			}
		}
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if isMerge(n.Content[i]) {
			continue
		}
		name, err := key(n.Content[i])
		if err != nil {
			return err
		}
		f.set(name, n.Content[i+1])
	}
	return nil
}

// merge adds the members of the map source, or of a list of maps of which earlier ones win.
func (w *writer) merge(f *fields, source *yaml.Node) error {
	source = follow(source)
	switch source.Kind {
	case yaml.MappingNode:
		return w.collect(f, source)
	case yaml.SequenceNode:
		for i := len(source.Content) - 1; i >= 0; i-- {
			item := follow(source.Content[i])
			if item.Kind != yaml.MappingNode {
				return fmt.Errorf("line %d: a merge key takes maps", item.Line)
			}
			if err := w.collect(f, item); err != nil {
				return err
			}
		}
		return nil
	default:
		return fmt.Errorf("line %d: a merge key takes a map or a list of maps", source.Line)
	}
}

func isMerge(key *yaml.Node) bool {
	return key.Kind == yaml.ScalarNode && plain(key) && key.Value == "<<"
}

func follow(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

// key returns the JSON name for a map's key.
func key(n *yaml.Node) (string, error) {
	n = follow(n)
	if n.Kind != yaml.ScalarNode {
		return "", fmt.Errorf("line %d: a list or map cannot be a key", n.Line)
	}
	if plain(n) && n.Value == "=" { // the sign of a default value is text as a key
		return n.Value, nil
	}
	value, err := scalar(n)
	if err != nil {
		return "", err
	}
	if value[0] != '"' {
		return string(value), nil
	}
	var name string
	return name, json.Unmarshal(value, &name)
}

// tagged reports whether n has no explicit tag, or one of those.
func tagged(n *yaml.Node, tags ...string) bool {
	if n.Style&yaml.TaggedStyle == 0 {
		return true
	}
	return slices.Contains(tags, n.ShortTag())
}

func unknownTag(n *yaml.Node) error {
	return fmt.Errorf("line %d: unknown tag %s", n.Line, n.ShortTag())
}

func quote(text string) []byte {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(text) // a string always encodes
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n"))
}
