package sqlite

import (
	"context"
	"errors"
	"fmt"

	"github.com/evalfleet/evalfleet/pkg/sqlite"
)

// steps are the tables with data that cannot be recreated. Steps are only ever appended.
//
// An event's row is appended at the end of the table, whatever its journal, so that a commit of many journals writes
// few pages; the index beside it is small.
var steps = []string{`
CREATE TABLE journal (
	id      INTEGER PRIMARY KEY,
	name    TEXT NOT NULL UNIQUE,
	head    INTEGER NOT NULL,
	epoch   INTEGER NOT NULL,
	owner   TEXT NOT NULL,
	open    INTEGER NOT NULL,
	request TEXT UNIQUE,
	digest  BLOB
);
CREATE INDEX journal_open ON journal (id, owner) WHERE open = 1;
CREATE TABLE journal_event (
	off     INTEGER PRIMARY KEY,
	journal INTEGER NOT NULL,
	seq     INTEGER NOT NULL,
	epoch   INTEGER NOT NULL,
	same    INTEGER NOT NULL,
	hash    BLOB,
	body    BLOB NOT NULL,
	UNIQUE (journal, seq)
);
CREATE TABLE journal_blob (
	hash BLOB NOT NULL UNIQUE,
	body BLOB NOT NULL
);
CREATE TABLE journal_inbox (
	id      INTEGER PRIMARY KEY,
	journal INTEGER NOT NULL,
	command TEXT NOT NULL,
	body    BLOB NOT NULL,
	seq     INTEGER NOT NULL DEFAULT 0,
	UNIQUE (journal, command)
);
CREATE INDEX journal_inbox_pending ON journal_inbox (journal, id) WHERE seq = 0;
CREATE TABLE journal_replica (
	name TEXT PRIMARY KEY,
	beat INTEGER NOT NULL
) WITHOUT ROWID;
`, `
CREATE INDEX journal_event_hash ON journal_event (hash) WHERE hash IS NOT NULL;
CREATE TABLE journal_deleted (
	id    INTEGER PRIMARY KEY,
	name  TEXT NOT NULL, -- as it was
	empty INTEGER NOT NULL DEFAULT 0
);
`, `
CREATE TABLE journal_store (id TEXT NOT NULL);
INSERT INTO journal_store (id) VALUES (lower(hex(randomblob(16))));
`, `
CREATE TABLE journal_unreleased (
	id   INTEGER PRIMARY KEY, -- of the journal, which may be gone
	name TEXT NOT NULL,       -- as it was
	at   INTEGER NOT NULL     -- nanoseconds since 1970
);
`, `
ALTER TABLE journal_store ADD COLUMN changes INTEGER NOT NULL DEFAULT 0;
`, `
CREATE TABLE journal_base (
	journal INTEGER PRIMARY KEY,
	base    INTEGER NOT NULL, -- the journal whose events up to seq are those of this one
	seq     INTEGER NOT NULL
);
CREATE INDEX journal_base_of ON journal_base (base);
`, `
DROP TABLE journal_replica;
`}

// Projections returns the names of the tables that can be dropped at any time: they are recreated from the journals
// when the store is opened.
func Projections() []string { return []string{"view_journal", "view_label"} }

// projection is the schema of those tables. Tables with another schema are recreated.
const projection = `
CREATE TABLE view_journal (
	id      INTEGER PRIMARY KEY,
	project TEXT NOT NULL,
	kind    INTEGER NOT NULL,
	state   INTEGER NOT NULL,
	parent  TEXT NOT NULL,
	waiting INTEGER NOT NULL,
	wake    INTEGER NOT NULL,
	reason  TEXT NOT NULL,
	since   INTEGER NOT NULL,
	changed INTEGER NOT NULL,
	view    BLOB NOT NULL
);
CREATE INDEX view_journal_changed ON view_journal (project, changed);
CREATE INDEX view_journal_list ON view_journal (project, kind, id);
CREATE INDEX view_journal_parent ON view_journal (parent, id) WHERE parent <> '';
CREATE TABLE view_label (
	id    INTEGER NOT NULL,
	key   TEXT NOT NULL,
	value TEXT NOT NULL,
	PRIMARY KEY (key, value, id)
) WITHOUT ROWID;
`

// projected is the last part of that schema. It is created once every journal has a row, and so marks the projections
// as complete.
const projected = `CREATE INDEX view_journal_reason ON view_journal (parent, reason, since) WHERE reason <> ''`

// rootIndex serves queries for evaluations and for runs without an evaluation. It is not part of the projections'
// schema, since a change of the schema recreates all rows.
const rootIndex = `CREATE INDEX IF NOT EXISTS view_journal_root ON view_journal (kind, id) WHERE parent = ''`

// hasProjections reports whether the projections have their present schema and a row for every journal. Its cost does
// not depend on the number of journals.
func (s *Store) hasProjections(ctx context.Context) (bool, error) {
	complete := true
	err := s.db.Read(ctx, func(v *sqlite.View) error {
		for statement := range statements(projection + projected) {
			var n int
			if err := v.QueryRow(`SELECT count(*) FROM sqlite_master WHERE sql = ?`, statement).Scan(&n); err != nil {
				return err
			}
			if complete = complete && n == 1; !complete {
				return nil
			}
		}
		return nil
	})
	return complete, err
}

// remake drops the projections and makes them empty.
func remake(tx *sqlite.Tx) error {
	var errs []error
	for _, table := range Projections() {
		_, err := tx.Exec(`DROP TABLE IF EXISTS ` + table)
		errs = append(errs, err)
	}
	for statement := range statements(projection) {
		_, err := tx.Exec(statement)
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("journal: make projections: %w", err)
	}
	return nil
}
