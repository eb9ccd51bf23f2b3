package cache_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/cache"
	"github.com/evalfleet/evalfleet/pkg/cache/cachetest"
)

func TestMemory(t *testing.T) {
	t.Parallel()
	cachetest.Run(t, cachetest.Harness{
		Run: func(t *testing.T, name string, f func(*testing.T, func(time.Duration))) {
			t.Helper()
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) { f(t, func(d time.Duration) { time.Sleep(d) }) })
			})
		},
		New: func(*testing.T) cache.Cache { return cache.NewMemory(1 << 20) },
	})
}

func TestMemoryDropsWhatWasNotAskedForLongest(t *testing.T) {
	t.Parallel()
	m := cache.NewMemory(10)
	put := func(id string, size int) {
		require.NoError(t, m.Put(t.Context(), cache.Key{ID: id}, make([]byte, size), time.Time{}))
	}
	has := func(id string) bool {
		_, ok, err := m.Get(t.Context(), cache.Key{ID: id})
		require.NoError(t, err)
		return ok
	}
	put("a", 4)
	put("b", 4)
	require.True(t, has("a"))
	put("c", 4)
	assert.True(t, has("a"))
	assert.False(t, has("b"))
	require.ErrorIs(t, m.Put(t.Context(), cache.Key{ID: "too large"}, make([]byte, 11), time.Time{}), cache.ErrNotKept)
	assert.False(t, has("too large"))
	assert.True(t, has("c"))
}
