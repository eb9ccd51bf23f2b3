// Package sqlite is the table of replicas in a SQLite database that it may share with others.
package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/evalfleet/evalfleet/pkg/replica"
	store "github.com/evalfleet/evalfleet/pkg/sqlite"
)

// Table keeps one row for each replica.
type Table struct{ db *store.DB }

var _ replica.Table = (*Table)(nil)

// schema are the steps, only ever appended to. Beats are in milliseconds since 1970, by the database's clock.
var schema = []string{`
CREATE TABLE replica (
	name    TEXT    NOT NULL PRIMARY KEY,
	process TEXT    NOT NULL, -- empty: none
	epoch   INTEGER NOT NULL,
	beat    INTEGER NOT NULL
) WITHOUT ROWID;
`}

// now is the database's clock.
const now = `CAST(unixepoch('subsec') * 1000 AS INTEGER)`

// New returns the table in db, and makes it where it is not there. db stays the caller's to close.
func New(ctx context.Context, db *store.DB) (*Table, error) {
	if err := db.Migrate(ctx, "replica", schema); err != nil {
		return nil, err
	}
	return &Table{db: db}, nil
}

// Join implements [replica.Table].
func (t *Table) Join(ctx context.Context, name, process string) (epoch int64, err error) {
	err = t.db.Write(ctx, func(tx *store.Tx) error {
		_, err := tx.Exec(`INSERT INTO replica (name, process, epoch, beat) VALUES (?1, ?2, 1, `+now+`)
			ON CONFLICT (name) DO UPDATE SET process = ?2, epoch = epoch + 1, beat = excluded.beat`, name, process)
		if err != nil {
			return err
		}
		return tx.QueryRow(`SELECT epoch FROM replica WHERE name = ?1`, name).Scan(&epoch)
	})
	return epoch, err
}

// Beat implements [replica.Table].
func (t *Table) Beat(ctx context.Context, process string) error {
	return t.db.Write(ctx, func(tx *store.Tx) error {
		res, err := tx.Exec(`UPDATE replica SET beat = `+now+` WHERE process = ?1 AND process <> ''`, process)
		if err != nil {
			return err
		}
		if n, err := res.RowsAffected(); err != nil || n > 0 {
			return err
		}
		return replica.ErrUnknown
	})
}

// Leave implements [replica.Table].
func (t *Table) Leave(ctx context.Context, process string) error {
	return t.db.Write(ctx, func(tx *store.Tx) error {
		_, err := tx.Exec(`UPDATE replica SET process = '' WHERE process = ?1`, process)
		return err
	})
}

// Silence implements [replica.Table].
func (t *Table) Silence(ctx context.Context, process string) (silence time.Duration, err error) {
	var ms int64
	err = t.db.Read(ctx, func(v *store.View) error {
		return v.QueryRow(`SELECT `+now+` - beat FROM replica WHERE process = ?1 AND process <> ''`, process).Scan(&ms)
	})
	if errors.Is(err, sql.ErrNoRows) {
		return 0, replica.ErrUnknown
	}
	return time.Duration(ms) * time.Millisecond, err
}
