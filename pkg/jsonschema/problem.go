package jsonschema

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/evalfleet/evalfleet/pkg/bound"
)

// explain describes the fault of a schema in terms of its author, who knows neither the name under which it is compiled
// nor the library.
func explain(err error) error {
	if invalid, ok := errors.AsType[*jsonschema.SchemaValidationError](err); ok {
		if cause, ok := errors.AsType[*jsonschema.ValidationError](invalid.Err); ok {
			var faults []string
			for _, v := range violations(cause) {
				faults = append(faults, "at "+place(v.At)+": "+v.Message)
			}
			return errors.New(strings.Join(faults, "; "))
		}
	}
	if outside, ok := errors.AsType[*jsonschema.LoadURLError](err); ok {
		return fmt.Errorf("%q leads out of the schema; put what it refers to under definitions", strings.TrimPrefix(outside.URL, location))
	}
	if missing, ok := errors.AsType[*jsonschema.JSONPointerNotFoundError](err); ok {
		return fmt.Errorf("there is no %s to refer to", strings.TrimPrefix(missing.URL, location))
	}
	if unknown, ok := errors.AsType[*jsonschema.UnsupportedDraftError](err); ok {
		return fmt.Errorf("the draft %q is not known; leave $schema out for draft 7", unknown.URL)
	}
	return errors.New(strings.ReplaceAll(err.Error(), location, ""))
}

// findLoop finds a schema that refers to itself at the same value, and returns its path.
func findLoop(root *jsonschema.Schema) (at string, found bool) {
	states := map[*jsonschema.Schema]state{}
	var seen []*jsonschema.Schema
	var visit func(s *jsonschema.Schema) bool
	visit = func(s *jsonschema.Schema) bool {
		if s == nil || states[s] == visited {
			return false
		}
		if states[s] == entered {
			_, at, _ = strings.Cut(s.Location, "#")
			return true
		}
		states[s] = entered
		seen = append(seen, s)
		if slices.ContainsFunc(sameValue(s), visit) {
			return true
		}
		states[s] = visited
		return false
	}
	found = visit(root)
	// Members and items are smaller than their container, so a path through them ends: each is a start of its own.
	for i := 0; i < len(seen) && !found; i++ {
		found = slices.ContainsFunc(partOfValue(seen[i]), visit)
	}
	return place(at), found
}

// findCostly finds a schema, in root or below it, that applies more schemas to one value than bound.SchemaApplications:
// references of which each refers to the next one twice double the work with every step. Root has no loops.
func findCostly(root *jsonschema.Schema) (at string, found bool) {
	costs := map[*jsonschema.Schema]int{nil: 0}
	var cost func(s *jsonschema.Schema) int
	cost = func(s *jsonschema.Schema) int {
		if known, ok := costs[s]; ok {
			return known
		}
		sum := 1
		for _, applied := range sameValue(s) {
			sum = min(sum+cost(applied), bound.SchemaApplications+1)
		}
		costs[s] = sum
		if sum > bound.SchemaApplications && !found {
			_, at, _ = strings.Cut(s.Location, "#")
			found = true
		}
		return sum
	}
	reached := map[*jsonschema.Schema]bool{nil: true, root: true}
	for next := []*jsonschema.Schema{root}; len(next) > 0 && !found; next = next[1:] {
		cost(next[0])
		for _, s := range slices.Concat(sameValue(next[0]), partOfValue(next[0])) {
			if !reached[s] {
				reached[s] = true
				next = append(next, s)
			}
		}
	}
	return place(at), found
}

// state is how far the look for loops is with a schema.
type state int

const (
	entered state = iota + 1 // on the way that is looked at
	visited                  // without a loop
)

func place(pointer string) string { return cmp.Or(pointer, "the root") }

// sameValue are the schemas that s applies to the value that it is itself applied to.
func sameValue(s *jsonschema.Schema) []*jsonschema.Schema {
	all := []*jsonschema.Schema{s.Ref, s.RecursiveRef, s.Not, s.If, s.Then, s.Else}
	if s.DynamicRef != nil {
		all = append(all, s.DynamicRef.Ref)
	}
	for _, list := range [][]*jsonschema.Schema{s.AllOf, s.AnyOf, s.OneOf} {
		all = append(all, list...)
	}
	for _, name := range slices.Sorted(maps.Keys(s.DependentSchemas)) {
		all = append(all, s.DependentSchemas[name])
	}
	for _, name := range slices.Sorted(maps.Keys(s.Dependencies)) {
		all = appendSchemas(all, s.Dependencies[name])
	}
	return all
}

// partOfValue are the schemas that s applies to members and items.
func partOfValue(s *jsonschema.Schema) []*jsonschema.Schema {
	all := []*jsonschema.Schema{s.PropertyNames, s.UnevaluatedProperties, s.Contains, s.Items2020, s.UnevaluatedItems}
	all = append(all, s.PrefixItems...)
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		all = append(all, s.Properties[name])
	}
	for _, property := range s.PatternProperties {
		all = append(all, property)
	}
	for _, either := range []any{s.AdditionalProperties, s.Items, s.AdditionalItems} {
		all = appendSchemas(all, either)
	}
	return all
}

// appendSchemas appends a schema or a list of schemas; some members of the library may also be something else.
func appendSchemas(all []*jsonschema.Schema, either any) []*jsonschema.Schema {
	switch v := either.(type) {
	case *jsonschema.Schema:
		return append(all, v)
	case []*jsonschema.Schema:
		return append(all, v...)
	default:
		return all
	}
}
