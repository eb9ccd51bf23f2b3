package sqlite

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/waittest"
)

var errRefused = errors.New("refused")

// together queues the functions behind one that holds the writer, so that they share the next transaction, and returns
// their outcomes in order. A panic is the outcome "panic".
func together(t *testing.T, db *DB, fns ...func(*Tx) error) []error {
	t.Helper()
	release := hold(t, db)
	out := make([]error, len(fns))
	var wg sync.WaitGroup
	for i, fn := range fns {
		wg.Go(func() {
			defer func() {
				if p := recover(); p != nil {
					out[i] = fmt.Errorf("panic: %w", p.(error))
				}
			}()
			out[i] = db.Write(context.Background(), fn)
		})
		awaitQueued(t, db, i+1)
	}
	release()
	waittest.Return(t, wg.Wait, "every write to return")
	return out
}

// hold keeps the writer busy until the returned function is called.
func hold(t *testing.T, db *DB) (release func()) {
	t.Helper()
	entered, leave, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		done <- db.Write(context.Background(), func(*Tx) error {
			close(entered)
			waittest.Hold(t, leave)
			return nil
		})
	}()
	waittest.For(t, entered, "the write that keeps the writer busy")
	return func() {
		close(leave)
		assert.NoError(t, waittest.For(t, done, "the end of the write that kept the writer busy"))
	}
}

// awaitQueued returns when n functions wait for the writer.
func awaitQueued(t *testing.T, db *DB, n int) {
	t.Helper()
	await(t, db, func(w *writer) bool { return len(w.queue) == n })
}

// await returns when the writer's state, seen under its lock, is as wanted.
func await(t *testing.T, db *DB, wanted func(*writer) bool) {
	t.Helper()
	for begun := time.Now(); ; {
		require.Less(t, time.Since(begun), waittest.Bound, "the writer is not as wanted")
		db.writer.mu.Lock()
		ok := wanted(db.writer)
		db.writer.mu.Unlock()
		if ok {
			return
		}
		runtime.Gosched()
	}
}

func TestWaitingWritesShareOneCommit(t *testing.T) {
	t.Parallel()
	db := open(t, Options{})
	release := hold(t, db)
	before := db.Stats()
	var wg sync.WaitGroup
	for i := range 10 {
		wg.Go(func() { assert.NoError(t, db.Write(context.Background(), insert(fmt.Sprint(i)))) })
	}
	awaitQueued(t, db, 10)
	release()
	waittest.Return(t, wg.Wait, "every write to return")
	after := db.Stats()
	assert.EqualValues(t, 2, after.Commits-before.Commits, "the holding one, and one for all that waited")
	assert.EqualValues(t, 11, after.Writes-before.Writes)
	assert.Len(t, names(t, db), 10)
}

func TestBatchIsBounded(t *testing.T) {
	t.Parallel()
	db := open(t, Options{MaxBatch: 2})
	before := db.Stats()
	for _, err := range together(t, db, insert("a"), insert("b"), insert("c")) {
		assert.NoError(t, err)
	}
	assert.EqualValues(t, 3, db.Stats().Commits-before.Commits)
	assert.Equal(t, []string{"a", "b", "c"}, names(t, db), "in the order of arrival")
}

func TestFailedWriteIsUndoneAlone(t *testing.T) {
	t.Parallel()
	insertThen := func(name string, end func() error) func(*Tx) error {
		return func(tx *Tx) error {
			if err := insert(name)(tx); err != nil {
				return err
			}
			return end()
		}
	}
	tests := []struct {
		name   string
		fn     func(*Tx) error
		want   string
		reruns uint64
	}{
		{"error before any change", func(*Tx) error { return errRefused }, "refused", 0},
		{"failed statement", insert("a"), "UNIQUE", 0},
		{"update of no row", func(tx *Tx) error {
			res, err := tx.Exec("UPDATE item SET name = 'x' WHERE name = 'nobody'")
			if err != nil {
				return err
			}
			if n, _ := res.RowsAffected(); n == 0 {
				return errRefused
			}
			return nil
		}, "refused", 0},
		{"error after a change", insertThen("x", func() error { return errRefused }), "refused", 1},
		{"error after a change by a query", func(tx *Tx) error {
			var id int
			if err := tx.QueryRow("INSERT INTO item (name) VALUES ('x') RETURNING id").Scan(&id); err != nil {
				return err
			}
			return errRefused
		}, "refused", 1},
		{"error after a new table", func(tx *Tx) error {
			if _, err := tx.Exec("CREATE TABLE other (id INTEGER)"); err != nil {
				return err
			}
			return errRefused
		}, "refused", 1},
		{"panic after a change", insertThen("x", func() error { panic("oh no") }), "oh no", 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			db := open(t, Options{})
			before := db.Stats()
			errs := together(t, db, insert("a"), tt.fn, insert("b"))
			assert.NoError(t, errs[0])
			assert.ErrorContains(t, errs[1], tt.want)
			assert.NoError(t, errs[2])
			assert.Equal(t, []string{"a", "b"}, names(t, db))
			after := db.Stats()
			assert.Equal(t, tt.reruns, after.Reruns-before.Reruns)
			assert.EqualValues(t, 1, after.Failed-before.Failed)
			assert.NoError(t, db.Write(t.Context(), func(tx *Tx) error {
				_, err := tx.Exec("CREATE TABLE other (id INTEGER)")
				return err
			}), "the table is not there")
		})
	}
}

func TestLoneFailedWriteIsUndoneAndRunsOnce(t *testing.T) {
	t.Parallel()
	db := open(t, Options{})
	runs := 0
	err := db.Write(t.Context(), func(tx *Tx) error {
		runs++
		if err := insert("a")(tx); err != nil {
			return err
		}
		return errRefused
	})
	assert.Equal(t, errRefused, err)
	assert.Equal(t, 1, runs)
	assert.Empty(t, names(t, db))
}

func TestFailedCommitFailsEveryone(t *testing.T) {
	t.Parallel()
	db := open(t, Options{})
	errs := together(t, db,
		insert("a"),
		func(*Tx) error { return errRefused },
		func(tx *Tx) error { // breaks a rule that is checked at the commit only
			_, err := tx.Exec("INSERT INTO child (item) VALUES (99)")
			return err
		},
		insert("b"),
	)
	for _, err := range errs {
		assert.ErrorContains(t, err, "FOREIGN KEY")
	}
	assert.Empty(t, names(t, db))
	assert.NoError(t, db.Write(t.Context(), insert("c")), "the writer goes on")
}

func TestFailureOfTheDatabaseFailsEveryone(t *testing.T) {
	t.Parallel()
	db := open(t, Options{})
	limit := func(pages int) {
		require.NoError(t, db.Write(t.Context(), func(tx *Tx) error {
			return tx.QueryRow(fmt.Sprintf("PRAGMA max_page_count = %d", pages)).Scan(new(int))
		}))
	}
	limit(8)
	errs := together(t, db,
		insert("a"),
		func(tx *Tx) error {
			_, err := tx.Exec("INSERT INTO item (name) VALUES (hex(randomblob(100000)))")
			assert.ErrorContains(t, err, "full")
			_, err = tx.Exec("INSERT INTO item (name) VALUES ('never')")
			assert.ErrorContains(t, err, "full", "no statement runs outside a transaction")
			return nil
		},
		insert("b"),
	)
	for _, err := range errs {
		assert.ErrorContains(t, err, "full")
	}
	assert.Empty(t, names(t, db))
	limit(1_000_000)
	assert.NoError(t, db.Write(t.Context(), insert("c")), "the writer goes on")
	assert.Equal(t, []string{"c"}, names(t, db))
}

func TestContextWithdrawsAQueuedWrite(t *testing.T) {
	t.Parallel()
	db := open(t, Options{})
	release := hold(t, db)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- db.Write(ctx, insert("withdrawn")) }()
	awaitQueued(t, db, 1)
	cancel()
	assert.ErrorIs(t, waittest.For(t, done, "the end of the write that was withdrawn"), context.Canceled)
	release()
	assert.NoError(t, db.Write(t.Context(), insert("a")))
	assert.Equal(t, []string{"a"}, names(t, db))
	assert.ErrorIs(t, db.Write(ctx, insert("late")), context.Canceled)
}

func TestContextDoesNotEndATakenWrite(t *testing.T) {
	t.Parallel()
	db := open(t, Options{})
	ctx, cancel := context.WithCancel(t.Context())
	err := db.Write(ctx, func(tx *Tx) error {
		cancel()
		return insert("a")(tx)
	})
	assert.NoError(t, err)
	assert.Equal(t, []string{"a"}, names(t, db))
}

func TestTxIsOverWithItsFunction(t *testing.T) {
	t.Parallel()
	db := open(t, Options{})
	var kept *Tx
	require.NoError(t, db.Write(t.Context(), func(tx *Tx) error { kept = tx; return nil }))
	_, err := kept.Exec("INSERT INTO item (name) VALUES ('late')")
	assert.Equal(t, ErrTxDone, err)
	assert.Equal(t, ErrTxDone, kept.QueryRow("SELECT 1").Scan(new(int)))
}

func TestCloseAnswersQueuedWritesFirst(t *testing.T) {
	t.Parallel()
	db := open(t, Options{})
	release := hold(t, db)
	queued, closed := make(chan error, 1), make(chan error, 1)
	go func() { queued <- db.Write(context.Background(), insert("a")) }()
	awaitQueued(t, db, 1)
	go func() { closed <- db.Close() }()
	await(t, db, func(w *writer) bool { return w.closing })
	assert.ErrorIs(t, db.Write(t.Context(), insert("late")), ErrClosed)
	release()
	assert.NoError(t, waittest.For(t, queued, "the write that was queued before the close"))
	assert.NoError(t, waittest.For(t, closed, "the close to return"))
	assert.ErrorIs(t, db.Read(t.Context(), func(*View) error { return nil }), ErrClosed)
}

func TestConcurrentWritersLoseNothing(t *testing.T) {
	t.Parallel()
	db := open(t, Options{})
	const callers, each = 16, 20
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			for i := range each {
				err := db.Write(t.Context(), insert(fmt.Sprintf("%d/%d", c, i)))
				assert.NoError(t, err)
				if i%5 == 0 {
					assert.Error(t, db.Write(t.Context(), func(tx *Tx) error {
						if err := insert(fmt.Sprintf("%d/%d failed", c, i))(tx); err != nil {
							return err
						}
						return errRefused
					}))
				}
			}
		})
	}
	waittest.Return(t, wg.Wait, "every write to return")
	assert.Len(t, names(t, db), callers*each)
}
