package sqlite

import (
	"errors"
	"time"

	driver "modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// tryAgain is when a caller outside may look again whether the database is back.
const tryAgain = time.Second

// Away reports whether an error of [DB.Read] or [DB.Write] says that the database takes or gives nothing now: its disk is full or fails, another process holds its lock, memory
// is short, or it is damaged. Such an error tells nothing about what was asked for, which may even have happened. Its kind is UNAVAILABLE (STORE_UNAVAILABLE), so it crosses
// services.
func Away(err error) bool { return rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_STORE_UNAVAILABLE) }

// isDamaged reports whether SQLite finds that a file is no database, or not the whole of one.
func isDamaged(err error) bool {
	failed, ok := errors.AsType[*driver.Error](err)
	if !ok {
		return false
	}
	code := failed.Code() & 0xff
	return code == sqlite3.SQLITE_CORRUPT || code == sqlite3.SQLITE_NOTADB
}

// explain gives the failures of the database itself their kind. It is the one place that classifies them; all other errors stay as they are.
func explain(err error) error {
	failed, ok := errors.AsType[*driver.Error](err)
	if !ok || Away(err) {
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
