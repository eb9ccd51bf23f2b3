package config

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"reflect"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/evalfleet/evalfleet/pkg/yamlnode"
)

// wrongKinds names every value below n that t cannot hold, with its line, its path and what belongs there, and every
// key that is set twice. It repeats no value: a secret may be in the wrong place.
func wrongKinds(n *yaml.Node, t reflect.Type, path string) error {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	line := n.Line
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	var faults []error
	wanted := KindOf(t)
	switch {
	case n.ShortTag() == "!!null" || reflect.PointerTo(t).Implements(reflect.TypeFor[yaml.Unmarshaler]()):
	case wanted != mapKind && wanted != listKind:
		if n.Kind == yaml.ScalarNode && n.Decode(reflect.New(t).Interface()) == nil && !(wanted == integerKind && yamlnode.CutsInteger(n)) {
			break
		}
		given := nodeKind(n)
		switch {
		case given == textKind && (wanted == durationKind || wanted == levelKind):
			given = "another text"
		case wanted == integerKind && (given == integerKind || given == fractionKind && !fractional(n)):
			given = "one that is too large"
		}
		faults = append(faults, fmt.Errorf("line %d: %s must be %s, not %s", line, path, wanted, given))
	case wanted != nodeKind(n):
		faults = append(faults, fmt.Errorf("line %d: %s must be %s, not %s", line, cmp.Or(path, "the configuration"), wanted, nodeKind(n)))
	case wanted == listKind:
		for i, element := range n.Content {
			faults = append(faults, wrongKinds(element, t.Elem(), fmt.Sprintf("%s[%d]", path, i)))
		}
	default:
		faults = append(faults, wrongValues(n, t, path))
	}
	return errors.Join(faults...)
}

// wrongValues are those of the values of a map.
func wrongValues(n *yaml.Node, t reflect.Type, path string) error {
	var faults []error
	var known map[string]reflect.Type
	if t.Kind() == reflect.Struct {
		_, known = keys(t)
	}
	lines := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, value := n.Content[i], n.Content[i+1]
		if name.ShortTag() == "!!merge" {
			continue
		}
		if first, twice := lines[name.Value]; twice {
			faults = append(faults, fmt.Errorf("line %d: %s is already set in line %d; keep one", name.Line, join(path, name.Value), first))
			continue
		}
		lines[name.Value] = name.Line
		inner := known[name.Value]
		if t.Kind() == reflect.Map {
			inner = t.Elem()
		}
		if inner != nil {
			faults = append(faults, wrongKinds(value, inner, join(path, name.Value)))
		}
	}
	return errors.Join(faults...)
}

// Kinds of values, in the words of a file.
const (
	mapKind      = "a map"
	listKind     = "a list"
	textKind     = "a text"
	integerKind  = "an integer"
	fractionKind = "a number with a fraction"
	durationKind = "a duration such as 30s or 5m"
	levelKind    = "debug, info, warn or error"
)

// fractional reports whether a value is a number with a fraction.
func fractional(n *yaml.Node) bool {
	var number float64
	return n.ShortTag() == "!!float" && n.Decode(&number) == nil && number != math.Trunc(number)
}

// KindOf is what a value of t is in a file or another document, for people, such as `a text`.
func KindOf(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[time.Duration]():
		return durationKind
	case t == reflect.TypeFor[slog.Level]():
		return levelKind
	case readsItself(t):
		return textKind
	}
	switch t.Kind() { // Others are texts, or in no document.
	case reflect.Struct, reflect.Map:
		return mapKind
	case reflect.Slice:
		return listKind
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int32, reflect.Int64, reflect.Uint, reflect.Uint32, reflect.Uint64:
		return integerKind
	case reflect.Float32, reflect.Float64:
		return "a number"
	default:
		return textKind
	}
}

// nodeKind is what a value is.
func nodeKind(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return mapKind
	case n.Kind == yaml.SequenceNode:
		return listKind
	}
	switch n.ShortTag() {
	case "!!int":
		return integerKind
	case "!!float":
		return fractionKind
	case "!!bool":
		return "true or false"
	default:
		return textKind
	}
}
