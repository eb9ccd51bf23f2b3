package redis_test

import (
	"bytes"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/evalfleet/evalfleet/pkg/cache"
	"github.com/evalfleet/evalfleet/pkg/cache/cachetest"
	cacheredis "github.com/evalfleet/evalfleet/pkg/cache/redis"
	"github.com/evalfleet/evalfleet/pkg/redisclient"
	"github.com/evalfleet/evalfleet/pkg/redistest"
	"github.com/evalfleet/evalfleet/pkg/waittest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open opens a client whose keys are the test's own.
func open(t *testing.T, server *redistest.Server) *redisclient.Client {
	t.Helper()
	options := server.Options()
	options.Prefix, options.Timeout = t.Name()+":", waittest.Bound
	client := redisclient.Open(options)
	t.Cleanup(func() { assert.NoError(t, client.Close()) })
	return client
}

// The reader's time is simulated, that of the server is not: it removes nothing here.
func TestRedis(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	cachetest.Run(t, cachetest.Harness{
		Run: func(t *testing.T, name string, f func(*testing.T, func(time.Duration))) {
			t.Helper()
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { f(t, func(d time.Duration) { time.Sleep(d) }) })
			})
		},
		New: func(t *testing.T) cache.Cache { return cacheredis.New(open(t, server), 1<<20) },
	})
}

func TestTheServerRemovesWhatHasExpired(t *testing.T) {
	t.Parallel()
	client := open(t, redistest.New(t))
	c := cacheredis.New(client, 1<<20)
	require.NoError(t, c.Put(t.Context(), cache.Key{Group: "g", ID: "1"}, []byte("value"), time.Now().Add(time.Hour)))
	require.NoError(t, c.Put(t.Context(), cache.Key{Group: "g", ID: "2"}, []byte("value"), time.Time{}))
	life := func(id string) time.Duration {
		d, err := client.PTTL(t.Context(), client.Prefix+"cache:g\x00"+id).Result()
		require.NoError(t, err)
		return d
	}
	assert.Positive(t, life("1"))
	assert.LessOrEqual(t, life("1"), time.Hour+time.Millisecond)
	assert.Negative(t, life("2"), "an entry without an expiry stays")
}

// A list of one group names no entry of another, whatever characters their names have, and all of its own.
func TestAListIsOfItsPrefixAlone(t *testing.T) {
	t.Parallel()
	c := cacheredis.New(open(t, redistest.New(t)), 1<<20)
	for i := range 2500 {
		require.NoError(t, c.Put(t.Context(), cache.Key{Group: "many/m", ID: fmt.Sprint(i)}, nil, time.Time{}))
	}
	for _, group := range []string{"n/a\x00b", "p*/m", "pq/m", `p\/m`, "p[q]/m", "p?/m"} {
		require.NoError(t, c.Put(t.Context(), cache.Key{Group: group, ID: "1"}, nil, time.Time{}))
	}
	for prefix, want := range map[string]int{"many/": 2500, "p*/": 1, `p\/`: 1, "p[q]/": 1, "p?/": 1, "p": 5, "n/a": 1, "no": 0} {
		assert.Len(t, cachetest.Listed(t, c, prefix, cache.Key{}), want, prefix)
	}
	infos := cachetest.Listed(t, c, "n/", cache.Key{})
	require.Len(t, infos, 1)
	assert.Equal(t, cache.Key{Group: "n/a\x00b", ID: "1"}, infos[0].Key)
	var keys []cache.Key
	for _, info := range cachetest.Listed(t, c, "many/", cache.Key{}) {
		keys = append(keys, info.Key)
	}
	removed, err := c.Delete(t.Context(), keys...)
	require.NoError(t, err)
	assert.Equal(t, 2500, removed)
}

// A full server without eviction refuses to write, and still has what was written before.
func TestAFullServerIsRead(t *testing.T) {
	t.Parallel()
	client := open(t, redistest.New(t))
	c := cacheredis.New(client, 1<<20)
	key := cache.Key{Group: "g", ID: "1"}
	require.NoError(t, c.Put(t.Context(), key, []byte("value"), time.Time{}))
	require.NoError(t, client.ConfigSet(t.Context(), "maxmemory", "1").Err())
	require.ErrorContains(t, c.Put(t.Context(), cache.Key{Group: "g", ID: "2"}, []byte("value"), time.Time{}), "OOM")
	_, ok, err := c.Get(t.Context(), key)
	require.NoError(t, err)
	assert.True(t, ok)
}

// What another program put under an entry's key is no entry, and hides no other one.
func TestAForeignValueIsNoEntry(t *testing.T) {
	t.Parallel()
	client := open(t, redistest.New(t))
	c := cacheredis.New(client, 1<<20)
	whole, foreign, short := cache.Key{Group: "g", ID: "1"}, cache.Key{Group: "g", ID: "2"}, cache.Key{Group: "g", ID: "3"}
	require.NoError(t, c.Put(t.Context(), whole, []byte("value"), time.Time{}))
	require.NoError(t, client.LPush(t.Context(), client.Prefix+"cache:g\x002", "x").Err())
	require.NoError(t, client.Set(t.Context(), client.Prefix+"cache:g\x003", "x", 0).Err())
	for _, key := range []cache.Key{foreign, short} {
		_, ok, err := c.Get(t.Context(), key)
		require.NoError(t, err)
		assert.False(t, ok)
		_, ok, err = c.Get(t.Context(), whole)
		require.NoError(t, err)
		assert.True(t, ok, "the server is asked as before")
	}
	infos := cachetest.Listed(t, c, "g", cache.Key{})
	require.Len(t, infos, 1)
	assert.Equal(t, whole, infos[0].Key)
	require.NoError(t, c.Put(t.Context(), foreign, []byte("new"), time.Time{}))
	value, ok, err := c.Get(t.Context(), foreign)
	require.NoError(t, err)
	assert.True(t, ok)
	assert.Equal(t, "new", string(value))
}

func TestAValueThatIsTooLargeIsNotKept(t *testing.T) {
	t.Parallel()
	c := cacheredis.New(open(t, redistest.New(t)), 10)
	key := cache.Key{Group: "g", ID: "1"}
	require.ErrorIs(t, c.Put(t.Context(), key, bytes.Repeat([]byte("x"), 11), time.Time{}), cache.ErrNotKept)
	_, ok, err := c.Get(t.Context(), key)
	require.NoError(t, err)
	assert.False(t, ok)
}

// While the server is away nothing is found, and only the first question of a second waits for it.
func TestWithoutTheServerNothingIsFound(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	synctest.Test(t, func(t *testing.T) {
		c := cacheredis.New(open(t, server), 1<<20)
		key := cache.Key{Group: "g", ID: "1"}
		require.NoError(t, c.Put(t.Context(), key, []byte("value"), time.Time{}))
		server.Stop()
		_, ok, err := c.Get(t.Context(), key)
		require.Error(t, err)
		assert.False(t, ok)
		_, ok, err = c.Get(t.Context(), key)
		require.NoError(t, err, "it is not asked again at once")
		assert.False(t, ok)
		require.ErrorIs(t, c.Put(t.Context(), key, []byte("value"), time.Time{}), cache.ErrNotKept)
		for _, err = range c.List(t.Context(), "", cache.Key{}) {
			break
		}
		require.ErrorContains(t, err, "redis, which has the response cache, does not answer")
	})
	require.NoError(t, server.Run(t.Context()))
	synctest.Test(t, func(t *testing.T) {
		c := cacheredis.New(open(t, server), 1<<20)
		key := cache.Key{Group: "g", ID: "1"}
		require.NoError(t, c.Put(t.Context(), key, []byte("value"), time.Time{}))
		_, ok, err := c.Get(t.Context(), key)
		require.NoError(t, err)
		assert.True(t, ok)
	})
}
