package sqlite_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/cache"
	"github.com/evalfleet/evalfleet/pkg/sqlite/sqlitefault"
)

// On a full disk what there is is found; what has expired is not, and that is no failure of the cache.
func TestAFullDiskIsRead(t *testing.T) {
	t.Parallel()
	disk := sqlitefault.New()
	c := open(t, file(t), 1000).On(disk)
	put(t, c, "old", 1, time.Now().Add(-time.Hour))
	put(t, c, "a", 1, time.Now().Add(time.Hour))
	disk.Fail(sqlitefault.Full)
	assert.False(t, has(t, c, "old"))
	assert.True(t, has(t, c, "a"))
	require.Error(t, c.Put(t.Context(), cache.Key{Group: "g", ID: "b"}, nil, time.Time{}))
	disk.Fail(sqlitefault.None)
	put(t, c, "b", 1, time.Time{})
	assert.False(t, has(t, c, "old"))
	assert.Equal(t, "a b", found(t, c))
}

// To remove all entries of a full disk gives their room back, though nothing can be written there.
func TestAFullDiskIsCleared(t *testing.T) {
	t.Parallel()
	disk, path := sqlitefault.New(), file(t)
	c := open(t, path, 1000).On(disk)
	keys := []cache.Key{{Group: "g", ID: "a"}, {Group: "g", ID: "b"}, {Group: "g", ID: "gone"}}
	put(t, c, "a", 1, time.Time{})
	put(t, c, "b", 1, time.Time{})
	disk.Fail(sqlitefault.Full)
	_, err := c.Delete(t.Context(), keys[0])
	require.ErrorContains(t, err, "the disk of the database is full")
	assert.Equal(t, "a b", found(t, c))
	removed, err := c.Delete(t.Context(), keys...)
	require.NoError(t, err)
	assert.Equal(t, 2, removed)
	assert.NoFileExists(t, path)
	assert.NoFileExists(t, path+"-wal")
	disk.Fail(sqlitefault.None)
	assert.Empty(t, found(t, c))
	put(t, c, "b", 1, time.Time{})
	assert.True(t, has(t, c, "b"))
}
