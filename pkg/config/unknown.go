package config

import (
	"encoding"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"
)

// unknownKeys names every key below n that t does not have, with its line, its path and the valid keys.
func unknownKeys(n *yaml.Node, t reflect.Type, path string) error {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	var faults []error
	switch {
	case readsItself(t):
	case t.Kind() == reflect.Slice && n.Kind == yaml.SequenceNode:
		for i, element := range n.Content {
			faults = append(faults, unknownKeys(element, t.Elem(), fmt.Sprintf("%s[%d]", path, i)))
		}
	case t.Kind() == reflect.Map && n.Kind == yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			faults = append(faults, unknownKeys(n.Content[i+1], t.Elem(), join(path, n.Content[i].Value)))
		}
	case t.Kind() == reflect.Struct && n.Kind == yaml.MappingNode:
		names, known := keys(t)
		for i := 0; i+1 < len(n.Content); i += 2 {
			name := n.Content[i]
			inner, ok := known[name.Value]
			if !ok && name.Tag != "!!merge" {
				faults = append(faults, fmt.Errorf("line %d: unknown key %s; known here: %s", name.Line, join(path, name.Value), strings.Join(names, ", ")))
			}
			if ok {
				faults = append(faults, unknownKeys(n.Content[i+1], inner, join(path, name.Value)))
			}
		}
	}
	return errors.Join(faults...)
}

// readsItself reports whether values of t decode themselves.
func readsItself(t reflect.Type) bool {
	p := reflect.PointerTo(t)
	return p.Implements(reflect.TypeFor[yaml.Unmarshaler]()) || p.Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}

// keys are a struct's keys in the file, in order, and the field of each.
func keys(t reflect.Type) (names []string, under map[string]reflect.Type) {
	under = map[string]reflect.Type{}
	for f := range t.Fields() {
		switch {
		case !f.IsExported() || key(f) == "-":
		case inline(f):
			innerNames, inner := keys(f.Type)
			names = append(names, innerNames...)
			for name, t := range inner {
				under[name] = t
			}
		default:
			names = append(names, key(f))
			under[key(f)] = f.Type
		}
	}
	return names, under
}
