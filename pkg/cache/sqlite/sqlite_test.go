package sqlite_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
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
	infos, err := c.List(t.Context(), "")
	require.NoError(t, err)
	var ids []string
	for _, info := range infos {
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
		put(t, c, "too large", 11, time.Time{})
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
	infos, err := c.List(t.Context(), "")
	require.NoError(t, err)
	assert.Len(t, infos, 5)
}
