// Package sqlite runs one SQLite database for many callers in one process: a single writer goroutine that collects the
// waiting writes into one transaction and syncs the disk once for all of them, and a pool of read-only connections
// beside it.
//
// Its one idea is group commit. A caller passes a function to [DB.Write], which returns only once the transaction with
// the function's changes is on disk, so a nil error means durable. The more callers wait, the more functions share one
// sync, and the cost of durability per write falls as the load rises.
//
//	caller ─ Write(fn) ─┐                    ┌ fn, fn, fn … ┐
//	caller ─ Write(fn) ─┼─▶ queue ─▶ BEGIN ─▶│  one by one  │─▶ COMMIT + fsync ─▶ answer all
//	caller ─ Write(fn) ─┘                    └──────────────┘
//
// The packages that own the tables define their meaning; each registers its schema with [DB.Migrate] under a namespace
// of its own.
package sqlite

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"
)

var (
	// ErrClosed is returned by every call on a [DB] that is closed or closing.
	ErrClosed = errors.New("sqlite: database is closed")
	// ErrTxDone is returned by a [View] or [Tx] that is used after its function has returned.
	ErrTxDone = errors.New("sqlite: transaction is over")
	// ErrNewerSchema is returned by [DB.Migrate] when the file was written by a newer program.
	ErrNewerSchema = errors.New("sqlite: schema is newer than this program")
)

// Options sets how a database is opened. The zero value is the intended one.
type Options struct {
	// Readers is the number of read-only connections, and so the number of [DB.Read] calls that run at once. Zero is 4.
	Readers int
	// BusyTimeout bounds the wait for a lock that another process holds on the file. Zero is 2s: the caller then learns
	// that the database is unavailable.
	BusyTimeout time.Duration
	// MaxBatch bounds the functions that share one transaction. Zero is 1024.
	MaxBatch int
	// Shrinks makes a new file give the space of what is deleted back to the disk, for some more writing. The default
	// keeps it for later rows.
	Shrinks bool
	// VFS names SQLite's virtual file system below the database. Empty is the operating system's; tests name one that
	// fails (pkg/sqlite/sqlitefault).
	VFS string
}

func (o Options) withDefaults() Options {
	if o.Readers <= 0 {
		o.Readers = 4
	}
	if o.BusyTimeout <= 0 {
		o.BusyTimeout = 2 * time.Second
	}
	if o.MaxBatch <= 0 {
		o.MaxBatch = 1024
	}
	return o
}

// DB is one open database. Its methods are safe for concurrent use.
type DB struct {
	writer    *writer
	readers   *readers
	closeOnce sync.Once
	closeErr  error
}

// Open opens the database at path; it creates a missing file, readable by its owner alone. The directory must exist.
// The caller must Close the database.
func Open(ctx context.Context, path string, opts Options) (*DB, error) {
	keepBlocks()
	opts = opts.withDefaults()
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("sqlite: %w", err)
	}
	if err := restrict(path); err != nil {
		return nil, fmt.Errorf("sqlite: create %s: %w", path, err)
	}
	w, err := openWriter(ctx, writerDSN(path, opts), opts.MaxBatch)
	if IsDamaged(err) {
		return nil, fmt.Errorf("sqlite: open %[1]s: %[2]w; the file is damaged: put a copy of it in its place, or move it away together with %[1]s-wal and %[1]s-shm to begin anew without what it holds", path, err)
	}
	if err != nil {
		return nil, fmt.Errorf("sqlite: open %s: %w", path, err)
	}
	r, err := openReaders(ctx, readerDSN(path, opts), opts.Readers)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("sqlite: open %s for reading: %w", path, err), w.close())
	}
	return &DB{writer: w, readers: r}, nil
}

// Close refuses new calls, waits for the queued writes and the running reads, and closes the file. Later calls wait for
// the first and return its error.
func (db *DB) Close() error {
	db.closeOnce.Do(func() {
		// The writer goes last: the last connection to close folds the write-ahead log into the main file, and a
		// read-only one cannot.
		db.writer.stop()
		readErr := db.readers.close()
		db.closeErr = errors.Join(readErr, db.writer.close())
	})
	return db.closeErr
}

// Stats are the writer's counters since Open.
type Stats struct {
	Commits uint64 // transactions committed; one disk sync each, unless nothing in it changed
	Writes  uint64 // functions answered with nil
	Failed  uint64 // functions answered with an error
	Reruns  uint64 // transactions run a second time because a function failed after a change
}

// Stats returns the counters so far.
func (db *DB) Stats() Stats {
	c := &db.writer.counters
	return Stats{Commits: c.commits.Load(), Writes: c.writes.Load(), Failed: c.failed.Load(), Reruns: c.reruns.Load()}
}

// restrict creates the file and removes the permissions of everyone but its owner. SQLite gives the write-ahead log and
// the shared memory file the mode of the main file.
func restrict(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(f.Chmod(0o600), f.Close())
}

func writerDSN(path string, o Options) string {
	// The driver sorts the _pragma values by name and applies the keys named for a pragma after them, which is what the
	// page size needs: it is settled when the journal mode makes the file.
	params := url.Values{
		"_journal_mode": {"WAL"},
		"_synchronous":  {"FULL"},
		"_foreign_keys": {"1"},
		"_pragma": {
			"page_size(8192)",
			"cache_size(-16384)", // KiB; taken as needed
			"temp_store(MEMORY)",
			"wal_autocheckpoint(4000)",
			"journal_size_limit(67108864)", // a long read may let the log outgrow the checkpoint; this shrinks it again
		},
	}
	if o.Shrinks {
		params.Set("_auto_vacuum", "FULL")
	}
	return dsn(path, o, params)
}

func readerDSN(path string, o Options) string {
	return dsn(path, o, url.Values{"mode": {"ro"}, "_query_only": {"1"}, "_pragma": {"temp_store(MEMORY)"}})
}

func dsn(path string, o Options, params url.Values) string {
	params.Set("_busy_timeout", strconv.FormatInt(o.BusyTimeout.Milliseconds(), 10))
	if o.VFS != "" {
		params.Set("vfs", o.VFS)
	}
	params.Set("_dqs", "0") // a misspelt "column" is an error, not a string
	return "file:" + (&url.URL{Path: path}).EscapedPath() + "?" + params.Encode()
}
