package sqlite

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/sqlite/sqlitefault"
	"github.com/evalfleet/evalfleet/pkg/waittest"
)

// TestADiskThatFailsHasAKind lets the disk fail in each way, and work again.
func TestADiskThatFailsHasAKind(t *testing.T) {
	t.Parallel()
	for cause, fault := range map[string]sqlitefault.Fault{"full": sqlitefault.Full, "io": sqlitefault.Sync} {
		t.Run(cause, func(t *testing.T) {
			t.Parallel()
			disk := sqlitefault.New()
			db := open(t, Options{VFS: disk.Name()})
			require.NoError(t, db.Write(t.Context(), insert("before")))
			disk.Fail(fault)
			for range 3 {
				err := db.Write(t.Context(), insert("during"))
				require.True(t, rpcerr.StoreAway(err), "%v", err)
				assert.Equal(t, fault == sqlitefault.Full, IsFull(err))
				assert.Equal(t, codes.Unavailable, rpcerr.Code(err))
				e, _ := rpcerr.As(err)
				assert.Equal(t, cause, e.Metadata["cause"])
				assert.Positive(t, rpcerr.RetryAfter(err))
			}
			assert.Equal(t, []string{"before"}, names(t, db), "what failed is not there, and can be read")
			disk.Fail(sqlitefault.None)
			require.NoError(t, db.Write(t.Context(), insert("during")), "the writer goes on by itself")
			assert.Equal(t, []string{"before", "during"}, names(t, db))
		})
	}
}

// TestADiskThatIsGoneFailsReadsToo reads what no connection has in memory.
func TestADiskThatIsGoneFailsReadsToo(t *testing.T) {
	t.Parallel()
	disk := sqlitefault.New()
	path := filepath.Join(t.TempDir(), "test.db")
	first, err := Open(t.Context(), path, Options{VFS: disk.Name()})
	require.NoError(t, err)
	require.NoError(t, first.Migrate(t.Context(), "test", []string{"CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT)"}))
	require.NoError(t, first.Write(t.Context(), insert("a")))
	require.NoError(t, first.Close())
	db := reopen(t, path, Options{VFS: disk.Name(), Readers: 1})
	disk.Fail(sqlitefault.Gone)
	read := func() error {
		return db.Read(t.Context(), func(v *View) error { return v.QueryRow("SELECT name FROM item").Scan(new(string)) })
	}
	require.True(t, rpcerr.StoreAway(read()))
	disk.Fail(sqlitefault.None)
	require.NoError(t, read())
}

// TestALockOfAnotherProcessHasAKind holds the file's lock by a second database.
func TestALockOfAnotherProcessHasAKind(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "test.db")
	one := reopen(t, path, Options{})
	require.NoError(t, one.Migrate(t.Context(), "test", []string{"CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT)"}))
	two := reopen(t, path, Options{BusyTimeout: time.Millisecond})
	held, let, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		done <- one.Write(t.Context(), func(tx *Tx) error {
			close(held)
			waittest.Hold(t, let)
			return insert("a")(tx)
		})
	}()
	waittest.For(t, held, "the write that holds the lock")
	err := two.Write(t.Context(), insert("b"))
	close(let)
	require.True(t, rpcerr.StoreAway(err), "%v", err)
	e, _ := rpcerr.As(err)
	assert.Equal(t, "busy", e.Metadata["cause"])
	require.NoError(t, waittest.For(t, done, "the end of the write that held the lock"))
}

// TestWhatWasAskedForKeepsItsError has functions fail for reasons of their own.
func TestWhatWasAskedForKeepsItsError(t *testing.T) {
	t.Parallel()
	db := open(t, Options{})
	require.NoError(t, db.Write(t.Context(), insert("a")))
	err := db.Write(t.Context(), insert("a"))
	require.ErrorContains(t, err, "UNIQUE")
	assert.False(t, rpcerr.StoreAway(err))
	assert.False(t, rpcerr.StoreAway(nil))
}
