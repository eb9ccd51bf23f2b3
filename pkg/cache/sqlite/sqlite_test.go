package sqlite_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/cache"
	"github.com/evalfleet/evalfleet/pkg/cache/cachetest"
	"github.com/evalfleet/evalfleet/pkg/cache/sqlite"
	store "github.com/evalfleet/evalfleet/pkg/sqlite"
)

// open opens the cache in a file until the test ends.
func open(t *testing.T, path string, most int64) *sqlite.Cache {
	t.Helper()
	c := sqlite.New(path, most, slog.New(slog.DiscardHandler))
	t.Cleanup(func() { assert.NoError(t, c.Close()) })
	return c
}

func file(t *testing.T) string { t.Helper(); return filepath.Join(t.TempDir(), "cache.db") }

func TestSuite(t *testing.T) {
	t.Parallel()
	cachetest.Run(t, cachetest.Harness{
		Run: func(t *testing.T, name string, f func(*testing.T, func(time.Duration))) {
			t.Helper()
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) { f(t, func(d time.Duration) { time.Sleep(d) }) })
			})
		},
		New: func(t *testing.T) cache.Cache { return open(t, file(t), 1<<20) },
	})
}

// found are the ids that a cache has.
func found(t *testing.T, c *sqlite.Cache) string {
	t.Helper()
	var ids []string
	for _, info := range cachetest.Listed(t, c, "", cache.Key{}) {
		ids = append(ids, info.Key.ID)
	}
	return strings.Join(ids, " ")
}

func put(t *testing.T, c *sqlite.Cache, id string, size int, expires time.Time) {
	t.Helper()
	require.NoError(t, c.Put(t.Context(), cache.Key{Group: "g", ID: id}, make([]byte, size), expires))
}

func has(t *testing.T, c *sqlite.Cache, id string) bool {
	t.Helper()
	_, ok, err := c.Get(t.Context(), cache.Key{Group: "g", ID: id})
	require.NoError(t, err)
	return ok
}

func TestEntriesOutliveTheProcess(t *testing.T) {
	t.Parallel()
	path := file(t)
	c := sqlite.New(path, 100, slog.New(slog.DiscardHandler))
	put(t, c, "a", 40, time.Time{})
	put(t, c, "b", 40, time.Now().Add(time.Hour))
	require.NoError(t, c.Close())
	_, _, err := c.Get(t.Context(), cache.Key{Group: "g", ID: "a"})
	require.ErrorIs(t, err, store.ErrClosed)

	c = open(t, path, 100)
	assert.Equal(t, "a b", found(t, c))
	assert.True(t, has(t, c, "a"))
	put(t, c, "c", 40, time.Time{})
	assert.Equal(t, "b c", found(t, c), "what the process before put takes room too")
	info, err := os.Stat(path)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode())
}

func TestRoomIsMade(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := open(t, file(t), 10)
		put(t, c, "a", 4, time.Time{})
		time.Sleep(time.Minute)
		put(t, c, "b", 4, time.Time{})
		time.Sleep(2 * time.Hour)
		require.True(t, has(t, c, "a"))
		put(t, c, "c", 4, time.Time{})
		assert.Equal(t, "a c", found(t, c), "b was not asked for longest")
		require.ErrorIs(t, c.Put(t.Context(), cache.Key{Group: "g", ID: "too large"}, make([]byte, 11), time.Time{}), cache.ErrNotKept)
		assert.Equal(t, "a c", found(t, c))
		put(t, c, "a", 2, time.Now().Add(time.Minute))
		put(t, c, "d", 4, time.Time{})
		assert.Equal(t, "a c d", found(t, c), "a takes less now")
		time.Sleep(time.Hour)
		put(t, c, "e", 2, time.Time{})
		assert.Equal(t, "c d e", found(t, c), "what has expired goes first")
		require.False(t, has(t, c, "a"))
		put(t, c, "f", 10, time.Time{})
		assert.Equal(t, "f", found(t, c))
	})
}

// A file that this version cannot read costs what it holds, and no call.
func TestAFileThatCannotBeUsedIsReplaced(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(t *testing.T, path string){
		"no database": func(t *testing.T, path string) {
			t.Helper()
			require.NoError(t, os.WriteFile(path, []byte(strings.Repeat("no database ", 1000)), 0o600))
		},
		"of a later version": func(t *testing.T, path string) {
			t.Helper()
			db, err := store.Open(context.Background(), path, store.Options{})
			require.NoError(t, err)
			require.NoError(t, db.Migrate(t.Context(), "cache", []string{"CREATE TABLE a (b)", "CREATE TABLE c (d)", "CREATE TABLE e (f)"}))
			require.NoError(t, db.Close())
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := file(t)
			spoil(t, path)
			var said strings.Builder
			c := sqlite.New(path, 100, slog.New(slog.NewTextHandler(&said, nil)))
			defer func() { assert.NoError(t, c.Close()) }()
			assert.False(t, has(t, c, "a"))
			put(t, c, "a", 1, time.Time{})
			assert.True(t, has(t, c, "a"))
			assert.Contains(t, said.String(), path)
		})
	}
}

// A folder that is not there is an error that names the file, and no reason to try no more.
func TestAFileThatCannotBeMadeIsTriedAgain(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "later")
	c := open(t, filepath.Join(folder, "cache.db"), 100)
	_, _, err := c.Get(t.Context(), cache.Key{Group: "g", ID: "a"})
	require.ErrorContains(t, err, folder)
	require.NoError(t, os.Mkdir(folder, 0o700))
	put(t, c, "a", 1, time.Time{})
	assert.True(t, has(t, c, "a"))
}

func TestManyCallersAtOnce(t *testing.T) {
	t.Parallel()
	c := open(t, file(t), 50)
	done := make(chan error)
	for i := range 8 {
		go func() {
			var err error
			for j := 0; j < 20 && err == nil; j++ {
				key := cache.Key{Group: "g", ID: fmt.Sprint(i, "-", j)}
				if err = c.Put(context.Background(), key, make([]byte, 10), time.Time{}); err == nil {
					_, _, err = c.Get(context.Background(), key)
				}
			}
			done <- err
		}()
	}
	for range 8 {
		require.NoError(t, <-done)
	}
	assert.Len(t, cachetest.Listed(t, c, "", cache.Key{}), 5)
}

// What was put after Get had found its key expired stays.
func TestAnEntryThatReplacesAnExpiredOneStays(t *testing.T) {
	t.Parallel()
	c := open(t, file(t), 1000)
	for range 200 {
		put(t, c, "a", 1, time.Now().Add(-time.Hour))
		got := make(chan error)
		go func() {
			_, _, err := c.Get(context.Background(), cache.Key{Group: "g", ID: "a"})
			got <- err
		}()
		put(t, c, "a", 2, time.Time{})
		require.NoError(t, <-got)
		require.True(t, has(t, c, "a"))
	}
}

// Damage that is found only while the cache is used costs what the file holds, too.
func TestAFileThatIsDamagedWhileItIsUsedIsReplaced(t *testing.T) {
	t.Parallel()
	const size, many = 4000, 40
	for name, spoil := range map[string]func(t *testing.T, path string){
		"pages": func(t *testing.T, path string) {
			t.Helper()
			f, err := os.OpenFile(path, os.O_RDWR, 0)
			require.NoError(t, err)
			_, err = f.WriteAt([]byte(strings.Repeat("no page ", 8192)), 5*8192)
			require.NoError(t, errors.Join(err, f.Close()))
		},
		"the sum of the sizes": func(t *testing.T, path string) {
			t.Helper()
			db, err := store.Open(t.Context(), path, store.Options{})
			require.NoError(t, err)
			require.NoError(t, db.Write(t.Context(), func(tx *store.Tx) error {
				_, err := tx.Exec("UPDATE total SET bytes = 1000000000")
				return err
			}))
			require.NoError(t, db.Close())
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := file(t)
			c := sqlite.New(path, size*many, slog.New(slog.DiscardHandler))
			for i := range many {
				put(t, c, fmt.Sprint(i), size, time.Time{})
			}
			require.NoError(t, c.Close())
			spoil(t, path)

			var said strings.Builder
			c = sqlite.New(path, size*many, slog.New(slog.NewTextHandler(&said, nil)))
			defer func() { assert.NoError(t, c.Close()) }()
			failures := 0
			for i := range 2 * many {
				key := cache.Key{Group: "g", ID: fmt.Sprint(i)}
				_, _, err := c.Get(t.Context(), key)
				if err == nil {
					err = c.Put(t.Context(), key, make([]byte, size), time.Time{})
				}
				if err != nil {
					failures++
					require.ErrorContains(t, err, path)
				}
			}
			assert.Equal(t, 1, failures, "an empty file took its place")
			assert.Equal(t, 1, strings.Count(said.String(), "an empty one takes its place"))
			assert.True(t, has(t, c, fmt.Sprint(2*many-1)))
		})
	}
}

// Where responses are removed because the disk is full, the disk has their room again.
func TestAFileShrinks(t *testing.T) {
	t.Parallel()
	path := file(t)
	c := sqlite.New(path, 1<<20, slog.New(slog.DiscardHandler))
	for i := range 50 {
		put(t, c, fmt.Sprint(i), 20000, time.Time{})
	}
	var keys []cache.Key
	for _, info := range cachetest.Listed(t, c, "", cache.Key{}) {
		keys = append(keys, info.Key)
	}
	_, err := c.Delete(t.Context(), keys...)
	require.NoError(t, err)
	require.NoError(t, c.Close())
	info, err := os.Stat(path)
	require.NoError(t, err)
	assert.Less(t, info.Size(), int64(200_000))
}

// A call whose answer is put does not wait until a cache is emptied that has got a smaller bound.
func TestASmallerBoundIsReachedInSteps(t *testing.T) {
	t.Parallel()
	path := file(t)
	c := sqlite.New(path, 1<<20, slog.New(slog.DiscardHandler))
	var puts sync.WaitGroup
	for i := range 1500 {
		puts.Go(func() {
			assert.NoError(t, c.Put(context.Background(), cache.Key{Group: "g", ID: fmt.Sprint(i)}, make([]byte, 10), time.Time{}))
		})
	}
	puts.Wait()
	require.NoError(t, c.Close())
	c = open(t, path, 100)
	for _, want := range []int{501, 10} {
		put(t, c, fmt.Sprint("new ", want), 10, time.Time{})
		assert.Len(t, cachetest.Listed(t, c, "", cache.Key{}), want)
	}
}
