// Package sqlite is a cache.Cache in a SQLite file of its own, which outlives the process.
//
// The file is made with the first use, and may be removed while no process has it open. One that a later version wrote,
// or that turns out to be damaged, is replaced by an empty one.
package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/evalfleet/evalfleet/pkg/cache"
	store "github.com/evalfleet/evalfleet/pkg/sqlite"
)

// schema lists the steps, which are append-only. The value is last in its row, so that lists do not read it.
var schema = []string{`
CREATE TABLE entries (
	entry      INTEGER PRIMARY KEY,
	of_group   TEXT    NOT NULL,
	id         TEXT    NOT NULL,
	size       INTEGER NOT NULL, -- of the value, in bytes
	expires_at INTEGER NOT NULL, -- milliseconds since 1970; 0: never
	used_at    INTEGER NOT NULL, -- milliseconds since 1970, and up to usedWithin old
	value      BLOB    NOT NULL,
	UNIQUE (of_group, id)
);
CREATE INDEX entries_used ON entries (used_at);
CREATE INDEX entries_expires ON entries (expires_at) WHERE expires_at > 0;
CREATE TABLE total (one INTEGER PRIMARY KEY CHECK (one = 1), bytes INTEGER NOT NULL);
INSERT INTO total VALUES (1, 0);
CREATE TRIGGER entries_added AFTER INSERT ON entries BEGIN UPDATE total SET bytes = bytes + NEW.size; END;
CREATE TRIGGER entries_removed AFTER DELETE ON entries BEGIN UPDATE total SET bytes = bytes - OLD.size; END;`}

// usedWithin is how old the time of an entry's last use may be: one that is found often is not written each time.
const usedWithin = time.Hour

// evictedAtOnce bounds the expired entries, and the others, that a call evicts: the call waits for it.
const evictedAtOnce = 1000

// Cache is a cache in a file.
type Cache struct {
	path    string
	options store.Options
	most    int64
	log     *slog.Logger

	mu     sync.Mutex
	db     *store.DB // nil before the first use
	closed bool
}

var _ cache.Cache = (*Cache)(nil)

// New returns the cache in the file at path, for values of up to maxBytes together: when it is full, expired entries
// and then the least recently used ones are evicted. A value that is larger by itself is not kept. No other process may
// have the file open. Close the cache.
func New(path string, maxBytes int64, log *slog.Logger) *Cache {
	return &Cache{path: path, options: store.Options{Readers: 2, Shrinks: true}, most: maxBytes, log: log}
}

// Close closes the file. Later calls fail.
func (c *Cache) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	if c.db == nil {
		return nil
	}
	return c.db.Close()
}

// Get implements cache.Cache.
func (c *Cache) Get(ctx context.Context, key cache.Key) (value []byte, ok bool, err error) {
	db, err := c.open(ctx)
	if err != nil {
		return nil, false, err
	}
	var entry, expires, used int64
	err = db.Read(ctx, func(v *store.View) error {
		const query = "SELECT entry, expires_at, used_at, value FROM entries WHERE of_group = ? AND id = ?"
		return v.QueryRow(query, key.Group, key.ID).Scan(&entry, &expires, &used, &value)
	})
	now := time.Now()
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return nil, false, nil
	case err != nil:
		return nil, false, c.failed(ctx, db, err)
	case (cache.Info{Expires: timeOf(expires)}).Expired(now):
		// Its number may be that of another entry since. An entry that cannot be removed is evicted later.
		_ = c.write(ctx, db, "DELETE FROM entries WHERE entry = ? AND expires_at = ?", entry, expires)
		return nil, false, nil
	case now.Sub(time.UnixMilli(used)) > usedWithin:
		// Without it the entry is only evicted sooner.
		_ = c.write(ctx, db, "UPDATE entries SET used_at = ?2 WHERE entry = ?1", entry, now.UnixMilli())
	}
	return value, true, nil
}

// Put implements cache.Cache.
func (c *Cache) Put(ctx context.Context, key cache.Key, value []byte, expires time.Time) error {
	if int64(len(value)) > c.most {
		return cache.ErrNotKept
	}
	db, err := c.open(ctx)
	if err != nil {
		return err
	}
	now := time.Now()
	return c.failed(ctx, db, db.Write(ctx, func(tx *store.Tx) error {
		if _, err := remove(tx, key); err != nil {
			return err
		}
		_, err := tx.Exec("INSERT INTO entries (of_group, id, size, expires_at, used_at, value) VALUES (?, ?, ?, ?, ?, ?)",
			key.Group, key.ID, len(value), millis(expires), now.UnixMilli(), value)
		if err != nil {
			return err
		}
		return c.makeRoom(tx, now)
	}))
}

// errTotal is the error for a sum of sizes that is more than all of them: the file is damaged.
var errTotal = errors.New("the sum of the sizes of its entries is wrong")

// makeRoom evicts entries until the rest fits: those that have expired, then the least recently used. If there are
// many, as after a smaller bound than before, later calls evict the rest.
func (c *Cache) makeRoom(tx *store.Tx, now time.Time) error {
	if full, err := c.isFull(tx); !full {
		return err
	}
	const ended = "DELETE FROM entries WHERE entry IN (SELECT entry FROM entries WHERE expires_at > 0 AND expires_at < ? LIMIT ?)"
	_, err := execute(tx, ended, now.UnixMilli(), evictedAtOnce)
	if err != nil {
		return err
	}
	for range evictedAtOnce {
		if full, err := c.isFull(tx); !full {
			return err
		}
		n, err := execute(tx, "DELETE FROM entries WHERE entry = (SELECT entry FROM entries ORDER BY used_at, entry LIMIT 1)")
		if err != nil {
			return err
		}
		if n == 0 {
			return errTotal
		}
	}
	return nil
}

func (c *Cache) isFull(tx *store.Tx) (bool, error) {
	var bytes int64
	err := tx.QueryRow("SELECT bytes FROM total").Scan(&bytes)
	return err == nil && bytes > c.most, err
}

// List implements cache.Cache. It reads no more entries than it yields, but for one, and values never.
func (c *Cache) List(ctx context.Context, prefix string, after cache.Key) iter.Seq2[cache.Info, error] {
	return func(yield func(cache.Info, error) bool) {
		db, err := c.open(ctx)
		if err != nil {
			yield(cache.Info{}, err)
			return
		}
		err = db.Read(ctx, func(v *store.View) error { return list(v, prefix, after, yield) })
		if err != nil {
			yield(cache.Info{}, c.failed(ctx, db, err))
		}
	}
}

func list(v *store.View, prefix string, after cache.Key, yield func(cache.Info, error) bool) error {
	first := after
	if first.Group < prefix {
		first = cache.Key{Group: prefix}
	}
	const query = "SELECT of_group, id, size, expires_at FROM entries WHERE (of_group, id) >= (?, ?) ORDER BY of_group, id"
	for row, err := range v.Query(query, first.Group, first.ID) {
		if err != nil {
			return err
		}
		var info cache.Info
		var expires int64
		if err := row.Scan(&info.Key.Group, &info.Key.ID, &info.Size, &expires); err != nil {
			return err
		}
		if info.Key == after {
			continue
		}
		info.Expires = timeOf(expires)
		if !strings.HasPrefix(info.Key.Group, prefix) || !yield(info, nil) {
			return nil
		}
	}
	return nil
}

// Delete implements cache.Cache. To delete rows takes space, which a full disk does not have: if there is none, the
// file is removed when all entries are deleted, and else nothing is.
func (c *Cache) Delete(ctx context.Context, keys ...cache.Key) (removed int, err error) {
	db, err := c.open(ctx)
	if err != nil {
		return 0, err
	}
	err = db.Write(ctx, func(tx *store.Tx) error {
		removed = 0
		for _, key := range keys {
			n, err := remove(tx, key)
			if err != nil {
				return err
			}
			removed += n
		}
		return nil
	})
	if store.IsFull(err) {
		if all := countOf(ctx, db, keys); all > 0 {
			return all, c.named(c.replace(ctx, db, err))
		}
	}
	if err != nil {
		return 0, c.failed(ctx, db, err)
	}
	return removed, nil
}

// countOf returns the number of all entries if the keys are those of all; else zero.
func countOf(ctx context.Context, db *store.DB, keys []cache.Key) (entries int) {
	known := make(map[cache.Key]struct{}, len(keys))
	for _, key := range keys {
		known[key] = struct{}{}
	}
	err := db.Read(ctx, func(v *store.View) error {
		return list(v, "", cache.Key{}, func(info cache.Info, _ error) bool {
			_, ok := known[info.Key]
			if entries++; !ok {
				entries = 0
			}
			return ok
		})
	})
	if err != nil {
		return 0
	}
	return entries
}

func remove(tx *store.Tx, key cache.Key) (int, error) {
	return execute(tx, "DELETE FROM entries WHERE of_group = ? AND id = ?", key.Group, key.ID)
}

// execute executes a statement, and returns the number of rows that it changed.
func execute(tx *store.Tx, statement string, args ...any) (int, error) {
	result, err := tx.Exec(statement, args...)
	if err != nil {
		return 0, err
	}
	n, err := result.RowsAffected()
	return int(n), err
}

func (c *Cache) write(ctx context.Context, db *store.DB, statement string, args ...any) error {
	return c.failed(ctx, db, db.Write(ctx, func(tx *store.Tx) error {
		_, err := tx.Exec(statement, args...)
		return err
	}))
}

// open returns the database, which the first call opens. A failure is tried again with the next call.
func (c *Cache) open(ctx context.Context) (*store.DB, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, c.named(store.ErrClosed)
	}
	if c.db != nil {
		return c.db, nil
	}
	ctx = context.WithoutCancel(ctx) // The connections outlive the call.
	db, err := c.opened(ctx)
	if store.IsDamaged(err) || errors.Is(err, store.ErrNewerSchema) {
		if err = c.discard(ctx, err); err == nil {
			db, err = c.opened(ctx)
		}
	}
	if err != nil {
		return nil, c.named(err)
	}
	c.db = db
	return db, nil
}

func (c *Cache) opened(ctx context.Context) (*store.DB, error) {
	db, err := store.Open(ctx, c.path, c.options)
	if err != nil {
		return nil, err
	}
	if err := db.Migrate(ctx, "cache", schema); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

// discard removes the file, which cannot be used, after what SQLite has beside it: a log that is left alone would be
// taken for that of the next file.
func (c *Cache) discard(ctx context.Context, reason error) error {
	c.log.WarnContext(ctx, "the file of the response cache cannot be used, and an empty one takes its place",
		"file", c.path, "error", reason)
	var faults []error
	for _, suffix := range []string{"-wal", "-shm", ""} {
		if err := os.Remove(c.path + suffix); !errors.Is(err, fs.ErrNotExist) {
			faults = append(faults, err)
		}
	}
	return errors.Join(faults...)
}

// failed returns the error of a call. If the database is damaged, its file is discarded: the next call opens another
// one, and calls in progress fail.
func (c *Cache) failed(ctx context.Context, db *store.DB, err error) error {
	if store.IsDamaged(err) || errors.Is(err, errTotal) {
		err = errors.Join(err, c.replace(ctx, db, err))
	}
	return c.named(err)
}

func (c *Cache) replace(ctx context.Context, damaged *store.DB, reason error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.db != damaged { // Another call has replaced it.
		return nil
	}
	c.db = nil
	_ = damaged.Close() // What it says of the file is known.
	return c.discard(ctx, reason)
}

// named names the file in an error; nil stays nil.
func (c *Cache) named(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("the response cache in %s: %w", c.path, err)
}

// millis is a time in the file, and timeOf is its reverse; the zero time is 0.
func millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

func timeOf(millis int64) time.Time {
	if millis == 0 {
		return time.Time{}
	}
	return time.UnixMilli(millis)
}
