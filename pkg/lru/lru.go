// Package lru keeps values by key up to a bound on their weight. When a new value would exceed it, the least recently
// used ones are evicted.
//
// It has no lock: its users need one that guards more than the cache.
package lru

import (
	"container/list"
	"iter"
)

// Cache keeps values. Its methods must not be called concurrently.
type Cache[K comparable, V any] struct {
	max     int64
	weight  int64
	entries map[K]*list.Element
	recent  list.List // of *entry[K, V], the one used last first
}

type entry[K comparable, V any] struct {
	key    K
	value  V
	weight int64
}

// New returns an empty cache for values of up to maxWeight together, in the unit of their weights.
func New[K comparable, V any](maxWeight int64) *Cache[K, V] {
	return &Cache[K, V]{max: maxWeight, entries: map[K]*list.Element{}}
}

// Get returns the value of a key, which is now the one used last.
func (c *Cache[K, V]) Get(key K) (value V, ok bool) {
	element, ok := c.entries[key]
	if !ok {
		return value, false
	}
	c.recent.MoveToFront(element)
	return element.Value.(*entry[K, V]).value, true
}

// Put stores a value in place of the key's former one, and returns the evicted ones, the longest unused first. A value
// that exceeds the bound by itself is evicted.
func (c *Cache[K, V]) Put(key K, value V, weight int64) (gone []V) {
	if former, ok := c.Remove(key); ok {
		gone = append(gone, former)
	}
	if weight > c.max {
		return append(gone, value)
	}
	for c.weight+weight > c.max {
		gone = append(gone, c.drop(c.recent.Back()))
	}
	c.entries[key] = c.recent.PushFront(&entry[K, V]{key: key, value: value, weight: weight})
	c.weight += weight
	return gone
}

// Remove forgets a key and returns its value.
func (c *Cache[K, V]) Remove(key K) (value V, ok bool) {
	element, ok := c.entries[key]
	if !ok {
		return value, false
	}
	return c.drop(element), true
}

// All yields keys and values, the most recently used first. The cache must not be modified during the iteration.
func (c *Cache[K, V]) All() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		for element := c.recent.Front(); element != nil; element = element.Next() {
			e := element.Value.(*entry[K, V])
			if !yield(e.key, e.value) {
				return
			}
		}
	}
}

func (c *Cache[K, V]) drop(element *list.Element) V {
	e := c.recent.Remove(element).(*entry[K, V])
	delete(c.entries, e.key)
	c.weight -= e.weight
	return e.value
}
