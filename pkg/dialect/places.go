package dialect

import (
	"fmt"
	"iter"
	"maps"
	"slices"
)

// Places are what a vendor numbers, such as the items of a stream: each at its place. The zero value has none.
type Places[T any] struct{ all map[int]*T }

// Get returns what is at a place; nil if nothing is.
func (p *Places[T]) Get(place int) *T { return p.all[place] }

// At returns what is at a place, which may be new. It fails for a place that is negative or not below most: what names
// the thing.
func (p *Places[T]) At(place, most int, what string) (thing *T, isNew bool, err error) {
	if place < 0 || place >= most {
		return nil, false, fmt.Errorf("%s at place %d", what, place)
	}
	if thing = p.all[place]; thing != nil {
		return thing, false, nil
	}
	if p.all == nil {
		p.all = map[int]*T{}
	}
	thing = new(T)
	p.all[place] = thing
	return thing, true, nil
}

// Len returns how many there are.
func (p *Places[T]) Len() int { return len(p.all) }

// All yields them in the order of their places.
func (p *Places[T]) All() iter.Seq[*T] {
	return func(yield func(*T) bool) {
		for _, place := range slices.Sorted(maps.Keys(p.all)) {
			if !yield(p.all[place]) {
				return
			}
		}
	}
}
