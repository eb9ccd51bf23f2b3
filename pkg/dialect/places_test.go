package dialect_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/dialect"
)

func TestPlacesAreBoundedAndInOrder(t *testing.T) {
	t.Parallel()
	var places dialect.Places[string]
	assert.Nil(t, places.Get(0))
	for _, at := range []int{3, 1} {
		thing, isNew, err := places.At(at, 4, "an item")
		require.NoError(t, err)
		assert.True(t, isNew)
		*thing = string(rune('a' + at))
	}
	again, isNew, err := places.At(3, 4, "an item")
	require.NoError(t, err)
	assert.False(t, isNew)
	assert.Same(t, places.Get(3), again)
	for _, at := range []int{-1, 4} {
		_, _, err := places.At(at, 4, "an item")
		assert.Error(t, err)
	}
	var all string
	for thing := range places.All() {
		all += *thing
	}
	assert.Equal(t, "bd", all)
	assert.Equal(t, 2, places.Len())
}
