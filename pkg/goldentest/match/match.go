// Package match compares an answer of the platform with the record. Recorded values contain markers where any value of
// a kind is accepted: free wording, new ids, times. Everything else is compared exactly: numbers by value, objects
// without the order of their members, lists in order, an absent member as null.
//
// Markers inside a text:
//
//	<prose:KEY {json}>  a sentence whose wording is free; it is not blank and contains every value of the json
//	<prose:KEY>, <prose>  the same without values
//	<id1>, <id2>, …     any text, the same one at each place of the marker
//
// Markers that are a whole text:
//
//	<id>, <id:PREFIX>   any id, any id with that prefix
//	<new>, <new-id>, <new:ROLE>  an id that is none of KnownIDs
//	<time>              a time: a number, or a text that is not blank
//	<text>, <reason>    a text that is not blank
//	<empty>             the empty text
//	NaN, Infinity, -Infinity  the text, or the number that it represents
//
// {"$long": …} represents a long text, by its runs, its ends, its size and its hash.
package match

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Equal compares got with the recorded value want and returns their differences; none if they agree. Both are JSON
// values (nil, bool, string, json.Number, []any, map[string]any) or anything that encoding/json can write.
func Equal(want, got any, opts ...Option) Differences {
	return New(opts...).Equal(want, got)
}

// Matcher compares the values of one case: `<id1>` represents the same text in all of its comparisons. It is not safe
// for concurrent use.
type Matcher struct {
	rules rules
	bound bindings
}

// New returns a Matcher that follows the options.
func New(opts ...Option) *Matcher {
	matcher := &Matcher{rules: defaultRules(), bound: bindings{}}
	for _, opt := range opts {
		opt(&matcher.rules)
	}
	return matcher
}

// Equal is as the function Equal, with further options for this comparison alone.
func (m *Matcher) Equal(want, got any, opts ...Option) Differences {
	rules := m.rules.clone()
	for _, opt := range opts {
		opt(&rules)
	}
	want, err := normalise(want)
	if err != nil {
		return Differences{{Path: "$", Want: "a JSON value", Got: err.Error()}}
	}
	got, err = normalise(got)
	if err != nil {
		return Differences{{Path: "$", Want: "a JSON value", Got: err.Error()}}
	}
	c := comparison{rules: rules, bound: m.bound}
	c.value("$", "", want, got)
	return c.found
}

// Difference is one place where two values disagree.
type Difference struct {
	// Path is the position, as $.member[index].
	Path string
	// Want and Got show the values, cut to a readable length.
	Want, Got string
}

func (d Difference) String() string {
	return d.Path + "\n    want " + d.Want + "\n    got  " + d.Got
}

// Differences is the result of a comparison; empty means equal.
type Differences []Difference

// maxShown bounds how many differences String shows.
const maxShown = 20

// String lists the differences, one under the other.
func (d Differences) String() string {
	var text strings.Builder
	for i, difference := range d {
		if i == maxShown {
			fmt.Fprintf(&text, "… and %d more\n", len(d)-maxShown)
			break
		}
		fmt.Fprintln(&text, difference)
	}
	return text.String()
}

// comparison is one walk over two values.
type comparison struct {
	rules rules
	bound bindings
	found Differences
}

func (c *comparison) differ(path string, want, got any) {
	c.found = append(c.found, Difference{Path: path, Want: show(want), Got: show(got)})
}

// value compares at path, where member is the name of the innermost member that holds the value.
func (c *comparison) value(path, member string, want, got any) {
	if c.absent(member, want) && c.absent(member, got) {
		return
	}
	equal := false
	switch want := want.(type) {
	case string:
		equal = c.text(want, got)
	case number:
		other, ok := got.(number)
		equal = ok && c.rules.equalNumbers(want, other)
	case []any:
		if other, ok := got.([]any); ok {
			c.list(path, member, want, other)
			return
		}
	case map[string]any:
		if long, ok := want["$long"].(map[string]any); ok && len(want) == 1 {
			equal = c.long(long, got)
			break
		}
		if other, ok := got.(map[string]any); ok {
			c.object(path, want, other)
			return
		}
	default: // nil, bool
		equal = want == got
	}
	if !equal {
		c.differ(path, want, got)
	}
}

func (c *comparison) absent(member string, value any) bool {
	switch value := value.(type) {
	case nil:
		return true
	case []any:
		return len(value) == 0 && c.rules.emptyIsAbsent(member)
	case map[string]any:
		return len(value) == 0 && c.rules.emptyIsAbsent(member)
	default:
		return false
	}
}

func (c *comparison) object(path string, want, got map[string]any) {
	names := slices.Concat(slices.Collect(maps.Keys(want)), slices.Collect(maps.Keys(got)))
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		c.value(path+pathStep(name), name, want[name], got[name])
	}
}

func (c *comparison) list(path, member string, want, got []any) {
	if len(want) != len(got) {
		c.found = append(c.found, Difference{Path: path, Want: showList(want), Got: showList(got)})
		return
	}
	if c.rules.inAnyOrder(member) {
		c.unordered(path, want, got)
		return
	}
	for i := range want {
		c.value(path+"["+strconv.Itoa(i)+"]", member, want[i], got[i])
	}
}

// unordered takes for every wanted item, in order, the first one left that equals it.
func (c *comparison) unordered(path string, want, got []any) {
	left := slices.Clone(got)
	for i, wanted := range want {
		found := slices.IndexFunc(left, func(candidate any) bool {
			attempt := comparison{rules: c.rules, bound: maps.Clone(c.bound)}
			attempt.value("", "", wanted, candidate)
			if len(attempt.found) > 0 {
				return false
			}
			maps.Copy(c.bound, attempt.bound)
			return true
		})
		if found < 0 {
			c.differ(path+"["+strconv.Itoa(i)+"]", wanted, left)
			return
		}
		left = slices.Delete(left, found, found+1)
	}
}

func pathStep(name string) string {
	if name != "" && strings.IndexFunc(name, func(r rune) bool {
		return r != '_' && r != '-' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	}) < 0 {
		return "." + name
	}
	return "[" + strconv.Quote(name) + "]"
}
