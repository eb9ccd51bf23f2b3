package match

import (
	"path"
	"slices"
)

// Option changes how values are compared.
type Option func(*rules)

// Tolerance lets numbers differ by the absolute amount, in place of the default relative difference of 1e-9.
func Tolerance(absolute float64) Option {
	return func(r *rules) { r.tolerate(); r.absolute = absolute }
}

// RelativeTolerance lets numbers differ by the share of the larger one, in place of 1e-9.
func RelativeTolerance(share float64) Option {
	return func(r *rules) { r.tolerate(); r.relative = share }
}

// EmptyAsAbsent makes empty lists and objects in members of these names equal to absent ones. Names are patterns as of
// path.Match: "*" means every member.
func EmptyAsAbsent(members ...string) Option {
	return func(r *rules) { r.empty = append(r.empty, members...) }
}

// AnyOrder compares lists in members of these names (patterns as of path.Match) without their order.
func AnyOrder(members ...string) Option {
	return func(r *rules) { r.unordered = append(r.unordered, members...) }
}

// AnyLines compares texts of several lines without the order of the lines. Markers may only be before the first line,
// as a header that ends with a line break.
func AnyLines() Option {
	return func(r *rules) { r.anyLines = true }
}

// KnownIDs names the ids that the input had: `<new>`, `<new-id>` and `<new:ROLE>` match none of them.
func KnownIDs(ids ...string) Option {
	return func(r *rules) { r.known = append(r.known, ids...) }
}

// rules is the effect of the options.
type rules struct {
	given              bool
	absolute, relative float64
	empty, unordered   []string
	anyLines           bool
	known              []string
}

func defaultRules() rules {
	return rules{relative: 1e-9}
}

func (r *rules) tolerate() {
	if !r.given {
		r.given, r.absolute, r.relative = true, 0, 0
	}
}

func (r *rules) clone() rules {
	c := *r
	c.empty, c.unordered, c.known = slices.Clone(r.empty), slices.Clone(r.unordered), slices.Clone(r.known)
	return c
}

func (r *rules) emptyIsAbsent(member string) bool { return matchesAny(r.empty, member) }

func (r *rules) inAnyOrder(member string) bool { return matchesAny(r.unordered, member) }

func matchesAny(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		matched, err := path.Match(pattern, name)
		return matched && err == nil
	})
}
