// Package cachetest is the suite that every cache.Cache passes.
package cachetest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/cache"
)

// Harness describes an implementation to test.
type Harness struct {
	// Run calls f as a subtest, in an environment where advance advances the clock of the cache.
	Run func(t *testing.T, name string, f func(t *testing.T, advance func(time.Duration)))
	// New makes an empty cache with room for all that the suite puts.
	New func(t *testing.T) cache.Cache
}

// Listed returns the entries whose group begins with prefix and whose keys follow after.
func Listed(t *testing.T, c cache.Cache, prefix string, after cache.Key) []cache.Info {
	t.Helper()
	var infos []cache.Info
	for info, err := range c.List(t.Context(), prefix, after) {
		require.NoError(t, err)
		infos = append(infos, info)
	}
	return infos
}

// Run runs the suite.
func Run(t *testing.T, h Harness) {
	t.Helper()
	for name, f := range map[string]func(*fixture){
		"what is put is found, and only there":       find,
		"a value counts until just after it expires": expire,
		"a value without an expiry stays":            stay,
		"a value is replaced":                        replace,
		"entries are listed by group":                listed,
		"a list is continued":                        continued,
		"entries are deleted":                        deleted,
	} {
		h.Run(t, name, func(t *testing.T, advance func(time.Duration)) {
			f(&fixture{T: t, Cache: h.New(t), advance: advance})
		})
	}
}

type fixture struct {
	*testing.T
	cache.Cache
	advance func(time.Duration)
}

func (f *fixture) put(group, id, value string, life time.Duration) {
	var expires time.Time
	if life != 0 {
		expires = time.Now().Add(life)
	}
	require.NoError(f, f.Put(f.Context(), cache.Key{Group: group, ID: id}, []byte(value), expires))
}

func (f *fixture) want(group, id, value string) {
	f.Helper()
	got, ok, err := f.Get(f.Context(), cache.Key{Group: group, ID: id})
	require.NoError(f, err)
	assert.Equal(f, value != "", ok)
	assert.Equal(f, value, string(got))
}

func find(f *fixture) {
	f.put("p/m", "1", "one", 0)
	f.want("p/m", "1", "one")
	f.want("p/m", "2", "")
	f.want("p/n", "1", "")
}

func expire(f *fixture) {
	f.put("p/m", "1", "one", time.Minute)
	f.advance(time.Minute)
	f.want("p/m", "1", "one")
	f.advance(time.Second)
	f.want("p/m", "1", "")
}

func stay(f *fixture) {
	f.put("p/m", "1", "one", 0)
	f.advance(100 * 365 * 24 * time.Hour)
	f.want("p/m", "1", "one")
}

func replace(f *fixture) {
	f.put("p/m", "1", "one", time.Minute)
	f.put("p/m", "1", "two", 0)
	f.advance(time.Hour)
	f.want("p/m", "1", "two")
}

func listed(f *fixture) {
	f.put("p/b", "1", "1234", 0)
	f.put("p/a", "2", "1", time.Minute)
	f.put("p/a", "1", "12", 0)
	f.put("q/a", "1", "1", 0)
	f.advance(time.Hour)
	infos := Listed(f.T, f.Cache, "p/", cache.Key{})
	require.Len(f, infos, 3)
	assert.Equal(f, []cache.Key{{Group: "p/a", ID: "1"}, {Group: "p/a", ID: "2"}, {Group: "p/b", ID: "1"}},
		[]cache.Key{infos[0].Key, infos[1].Key, infos[2].Key})
	assert.Equal(f, []int64{2, 1, 4}, []int64{infos[0].Size, infos[1].Size, infos[2].Size})
	assert.False(f, infos[0].Expired(time.Now()))
	assert.True(f, infos[1].Expired(time.Now()))
}

func continued(f *fixture) {
	all := []cache.Key{{Group: "p/a", ID: "2"}, {Group: "p/a", ID: "3"}, {Group: "p/a !", ID: "1"}, {Group: "p/b", ID: "1"}}
	for _, key := range all {
		f.put(key.Group, key.ID, "one", 0)
	}
	f.put("o/a", "1", "one", 0)
	f.put("q/a", "1", "one", 0)
	for from, after := range []cache.Key{{Group: "o/z", ID: "1"}, all[0], all[1], all[2], all[3], {Group: "q/a"}} {
		for to := from; to <= len(all); to++ { // The reader may end the list at any entry.
			var got []cache.Key
			for info, err := range f.List(f.Context(), "p/", after) {
				require.NoError(f, err)
				if len(got) == to-from {
					break
				}
				got = append(got, info.Key)
			}
			assert.Equal(f, all[from:to], append([]cache.Key{}, got...), "%v", after)
		}
	}
	f.want("p/b", "1", "one")
}

func deleted(f *fixture) {
	f.put("p/m", "1", "one", 0)
	f.put("p/m", "2", "two", 0)
	removed, err := f.Delete(f.Context(), cache.Key{Group: "p/m", ID: "1"}, cache.Key{Group: "p/m", ID: "3"})
	require.NoError(f, err)
	assert.Equal(f, 1, removed)
	f.want("p/m", "1", "")
	f.want("p/m", "2", "two")
}
