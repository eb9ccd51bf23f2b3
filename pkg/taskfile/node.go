package taskfile

import (
	"errors"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/evalfleet/evalfleet/pkg/enum"
	"github.com/evalfleet/evalfleet/pkg/yamlnode"
)

// key reads the value of one key.
type key func(*yaml.Node) error

// entry is a key of a map with its value.
type entry struct{ key, value *yaml.Node }

// entries returns the entries of a map, in order. Entries of merged maps (`<<: *other`) come last, without the map's
// own keys. yamlnode ensures that no map merges itself.
func entries(n *yaml.Node) []entry {
	var own, merged []entry
	has := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		e := entry{n.Content[i], resolved(n.Content[i+1])}
		if e.key.Tag != "!!merge" {
			own = append(own, e)
			has[e.key.Value] = true
			continue
		}
		for _, source := range listed(e.value) {
			if source = resolved(source); source.Kind == yaml.MappingNode {
				merged = append(merged, entries(source)...)
			}
		}
	}
	for _, e := range merged {
		if !has[e.key.Value] {
			own = append(own, e)
			has[e.key.Value] = true
		}
	}
	return own
}

// listed returns the items of a list, or the value itself.
func listed(n *yaml.Node) []*yaml.Node {
	if n.Kind == yaml.SequenceNode {
		return n.Content
	}
	return []*yaml.Node{n}
}

// resolved follows an alias.
func resolved(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

func textNode(text string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: text}
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// mapping reads a map whose keys are all known.
func (r *reader) mapping(n *yaml.Node, what string, keys map[string]key) error {
	if n.Kind != yaml.MappingNode {
		return r.fault(n, "%s must be a map; known keys: %s", what, known(keys))
	}
	var faults []error
	seen := map[string]bool{}
	for _, e := range entries(n) {
		read, ok := keys[e.key.Value]
		switch {
		case seen[e.key.Value]:
			faults = append(faults, r.fault(e.key, "%s has the key %q twice", what, e.key.Value))
		case !ok:
			faults = append(faults, r.fault(e.key, "%s has no key %q; %s", what, e.key.Value, hint(e.key.Value, keys)))
		default:
			if err := r.within(e.key.Value, func() error { return read(e.value) }); err != nil {
				faults = append(faults, err)
			}
		}
		seen[e.key.Value] = true
	}
	return errors.Join(faults...)
}

// within reads the value of a key of the value that is being read.
func (r *reader) within(key string, read func() error) error {
	outer := r.key
	if r.key += "." + key; outer == "" {
		r.key = key
	}
	defer func() { r.key = outer }()
	return read()
}

// decode reads a plain value into v.
func decode[T any](r *reader, v *T) key {
	return func(n *yaml.Node) error {
		if n.Tag == "!!null" || n.ShortTag() == "!!binary" || cuts(n, v) || n.Decode(v) != nil {
			return r.fault(n, "%s must be %s, not %s", r.key, shape(v), show(n))
		}
		return nil
	}
}

// cuts reports whether decoding would make another number of one where a whole number is wanted.
func cuts(n *yaml.Node, v any) bool {
	switch v.(type) {
	case *int32, *int64:
		return yamlnode.CutsInteger(n)
	}
	return false
}

// word reads the word of an enum's value.
func word[E enum.Enum](r *reader, v *E) key {
	return func(n *yaml.Node) error {
		var text string
		if err := decode(r, &text)(n); err != nil {
			return err
		}
		value, ok := enum.Parse[E](text)
		if !ok {
			return r.fault(n, "%s must be one of %s, not %s", r.key, strings.Join(enum.Words(value.Descriptor()), ", "), show(n))
		}
		*v = value
		return nil
	}
}

// optional reads a plain value into a new *v.
func optional[T any](r *reader, v **T) key {
	return func(n *yaml.Node) error {
		*v = new(T)
		return decode(r, *v)(n)
	}
}

// shape describes the type of v, for messages.
func shape(v any) string {
	switch v.(type) {
	case *string:
		return "a text"
	case *bool:
		return "true or false"
	case *int32, *int64:
		return "a whole number"
	case *float64:
		return "a number"
	case *[]string:
		return "a list of texts"
	case *map[string]string:
		return "a map of texts"
	}
	return "something else"
}

// show formats a value, for messages.
func show(n *yaml.Node) string {
	const long = 40
	switch {
	case n.Kind == yaml.MappingNode:
		return "a map"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case n.Tag == "!!null":
		return "nothing"
	case len(n.Value) > long:
		return "“" + strings.ToValidUTF8(n.Value[:long], "") + "…”"
	}
	return "“" + n.Value + "”"
}

// items calls read for every item of a list, or once for a value that is not a list.
func items(n *yaml.Node, read key) error {
	var faults []error
	for _, item := range listed(n) {
		if err := read(resolved(item)); err != nil {
			faults = append(faults, err)
		}
	}
	return errors.Join(faults...)
}

// texts reads a text, or a list of them.
func (r *reader) texts(to *[]string) key {
	return func(n *yaml.Node) error {
		return items(n, func(n *yaml.Node) error {
			if n.Kind != yaml.ScalarNode {
				return r.fault(n, "%s must be texts, not %s", r.key, show(n))
			}
			*to = append(*to, n.Value)
			return nil
		})
	}
}

// named reads `name` or `{name: params}` (a map of one key). Without parameters params is nil.
func (r *reader) named(n *yaml.Node, what string) (name string, params *yaml.Node, err error) {
	switch {
	case n.Kind == yaml.ScalarNode && n.Value != "" && n.Tag != "!!null":
		return n.Value, nil, nil
	case n.Kind == yaml.MappingNode && len(n.Content) == 2:
		if params = resolved(n.Content[1]); params.Tag == "!!null" {
			return n.Content[0].Value, nil, nil
		}
		if params.Kind != yaml.MappingNode {
			return "", nil, r.fault(n.Content[1], "parameters of %s must be a map, not %s", n.Content[0].Value, show(params))
		}
		own := *params // An alias shares its node, and parameters are taken out of it.
		return n.Content[0].Value, &own, nil
	}
	return "", nil, r.fault(n, "%s must be a name, or one name with its parameters, such as `%s`", what, examples[what])
}

// examples are names with parameters, by what they name.
var examples = map[string]string{
	"a solver": "system_message: {template: Be brief.}",
	"a tool":   "bash: {timeout: 60}",
	"a scorer": "match: {location: end}",
	"a metric": "stderr: {cluster: topic}",
}
