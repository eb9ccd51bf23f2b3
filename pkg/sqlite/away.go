package sqlite

import (
	"errors"
	"slices"
	"time"

	driver "modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// tryAgain is when a caller outside may look again whether the database is back.
const tryAgain = time.Second

// IsDamaged reports whether SQLite reports that a file is not a database, or not a complete one.
func IsDamaged(err error) bool { return hasCode(err, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB) }

// IsFull reports whether SQLite reports that the disk has no space left.
func IsFull(err error) bool { return hasCode(err, sqlite3.SQLITE_FULL) }

func hasCode(err error, codes ...int) bool {
	failed, ok := errors.AsType[*driver.Error](err)
	return ok && slices.Contains(codes, failed.Code()&0xff)
}

// explain classifies the failures of the database itself, for [rpcerr.StoreAway]: its disk is full or fails, another
// process holds its lock, memory is short, or it is damaged. No other code classifies them; other errors are unchanged.
func explain(err error) error {
	failed, ok := errors.AsType[*driver.Error](err)
	if !ok || rpcerr.StoreAway(err) {
		return err
	}
	switch failed.Code() & 0xff {
	case sqlite3.SQLITE_FULL:
		return rpcerr.StoreUnavailable("full", tryAgain, "the disk of the database is full, so it takes nothing; free space there, and what waits goes on: %w", err)
	case sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM:
		return rpcerr.StoreUnavailable("io", tryAgain, "the disk of the database fails; the system's log may say why: %w", err)
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL:
		return rpcerr.StoreUnavailable("busy", tryAgain, "another process holds the database's lock; see which one opened its file: %w", err)
	case sqlite3.SQLITE_NOMEM:
		return rpcerr.StoreUnavailable("memory", tryAgain, "memory is too short for the database: %w", err)
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
		return rpcerr.StoreUnavailable("damaged", tryAgain, "the database is damaged; stop the server and put a copy in its place: %w", err)
	default:
		return err
	}
}
