// Package sqlite is the table of replicas in a SQLite database that it may share with others.
package sqlite

import (
	"context"
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
	process TEXT    NOT NULL,
	epoch   INTEGER NOT NULL,
	beat    INTEGER NOT NULL
) WITHOUT ROWID;
`, `
DROP TABLE replica;
CREATE TABLE replica (
	service TEXT    NOT NULL,
	name    TEXT    NOT NULL,
	process TEXT    NOT NULL, -- empty: none
	address TEXT    NOT NULL,
	epoch   INTEGER NOT NULL,
	beat    INTEGER NOT NULL,
	absent  INTEGER NOT NULL, -- milliseconds from the last beat of the process before to the first of this one
	PRIMARY KEY (service, name)
) WITHOUT ROWID;
`}

// now is the database's clock.
const now = `CAST(unixepoch('subsec') * 1000 AS INTEGER)`

// New returns the table in db, and creates it if it does not exist. The caller closes db.
func New(ctx context.Context, db *store.DB) (*Table, error) {
	if err := db.Migrate(ctx, "replica", schema); err != nil {
		return nil, err
	}
	return &Table{db: db}, nil
}

// Join implements [replica.Table].
func (t *Table) Join(ctx context.Context, m replica.Member) (replica.Row, error) {
	joined := replica.Row{Member: m}
	var absent int64
	err := t.db.Write(ctx, func(tx *store.Tx) error {
		return tx.QueryRow(`INSERT INTO replica (service, name, process, address, epoch, beat, absent) VALUES (?1, ?2, ?3, ?4, 1, `+now+`, 0)
			ON CONFLICT (service, name) DO UPDATE SET process = excluded.process, address = excluded.address, epoch = epoch + 1,
				beat = excluded.beat, absent = max(0, excluded.beat - beat)
			RETURNING epoch, absent`, m.Service, m.Name, m.Process, m.Address).Scan(&joined.Epoch, &absent)
	})
	if err != nil {
		return replica.Row{}, err
	}
	joined.Silence = time.Duration(absent) * time.Millisecond
	return joined, nil
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

// List implements [replica.Table].
func (t *Table) List(ctx context.Context) ([]replica.Row, error) {
	var rows []replica.Row
	err := t.db.Read(ctx, func(v *store.View) error {
		rows = nil
		for row, err := range v.Query(`SELECT service, name, process, address, epoch, max(0, ` + now + ` - beat) FROM replica ORDER BY service, name`) {
			var (
				r  replica.Row
				ms int64
			)
			if err == nil {
				err = row.Scan(&r.Service, &r.Name, &r.Process, &r.Address, &r.Epoch, &ms)
			}
			if err != nil {
				return err
			}
			r.Silence = time.Duration(ms) * time.Millisecond
			rows = append(rows, r)
		}
		return nil
	})
	return rows, err
}
