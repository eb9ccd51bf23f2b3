package lru_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/evalfleet/evalfleet/pkg/lru"
)

// keys are those of a cache, the one used last first.
func keys(c *lru.Cache[string, int]) (all []string) {
	for key := range c.All() {
		all = append(all, key)
	}
	return all
}

func TestWhatWasNotUsedForLongestGoes(t *testing.T) {
	t.Parallel()
	c := lru.New[string, int](3)
	for i, key := range []string{"a", "b", "c"} {
		assert.Empty(t, c.Put(key, i, 1))
	}
	value, ok := c.Get("a")
	assert.True(t, ok)
	assert.Zero(t, value)
	assert.Equal(t, []int{1}, c.Put("d", 3, 1))
	assert.Equal(t, []string{"d", "a", "c"}, keys(c))
	_, ok = c.Get("b")
	assert.False(t, ok)
}

func TestWeightsAreBoundedTogether(t *testing.T) {
	t.Parallel()
	c := lru.New[string, int](10)
	c.Put("a", 1, 4)
	c.Put("b", 2, 4)
	assert.Equal(t, []int{1, 2}, c.Put("c", 3, 9))
	assert.Equal(t, []int{4}, c.Put("d", 4, 11), "too heavy by itself: it pushes nothing out")
	assert.Equal(t, []string{"c"}, keys(c))
}

func TestAnotherValueOfAKeyTakesItsPlace(t *testing.T) {
	t.Parallel()
	c := lru.New[string, int](10)
	c.Put("a", 1, 10)
	assert.Equal(t, []int{1}, c.Put("a", 2, 6))
	assert.Empty(t, c.Put("b", 3, 4), "the former one's weight is free")
	assert.Equal(t, []int{2, 5}, c.Put("a", 5, 11), "what is too heavy leaves nothing old behind")
	assert.Equal(t, []string{"b"}, keys(c))
}

func TestRemove(t *testing.T) {
	t.Parallel()
	c := lru.New[string, int](1)
	c.Put("a", 1, 1)
	value, ok := c.Remove("a")
	assert.True(t, ok)
	assert.Equal(t, 1, value)
	_, ok = c.Remove("a")
	assert.False(t, ok)
	assert.Empty(t, c.Put("b", 2, 1))
}
