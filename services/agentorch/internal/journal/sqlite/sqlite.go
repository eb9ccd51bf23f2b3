// Package sqlite stores journals in the process's SQLite database, whose single writer commits the appends of all
// journals together.
package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"
	"strings"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/pkg/sqlite"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
)

// namespace of the schema.
const namespace = "agentorch/journal"

// Store is a [journal.Store] in SQLite.
type Store struct {
	journal.Hub

	db *sqlite.DB
}

var _ journal.Store = (*Store)(nil)

// Fold returns a journal's row from its events, for [journal.Index.Rebuild].
type Fold = func(journal.Head, iter.Seq2[*agentv1.Event, error]) (journal.Row, error)

// Open opens the journals in db. It recreates missing projections with fold.
func Open(ctx context.Context, db *sqlite.DB, fold Fold) (*Store, error) {
	if err := db.Migrate(ctx, namespace, steps); err != nil {
		return nil, err
	}
	s := &Store{db: db}
	there, err := s.hasProjections(ctx)
	if err != nil {
		return nil, fmt.Errorf("journal: open: %w", err)
	}
	if !there {
		if err := s.Rebuild(ctx, fold); err != nil {
			return nil, err
		}
	}
	err = db.Write(ctx, func(tx *sqlite.Tx) error {
		_, err := tx.Exec(rootIndex)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("journal: open: %w", err)
	}
	return s, nil
}

// Open implements [journal.Journals].
func (s *Store) Open(ctx context.Context, name string) (journal.Head, error) {
	var head journal.Head
	err := s.db.Read(ctx, func(v *sqlite.View) (err error) {
		head, err = open(v, name)
		return err
	})
	return head, err
}

func open(v *sqlite.View, name string) (journal.Head, error) {
	h := journal.Head{Name: name}
	err := v.QueryRow(`SELECT id, head, epoch, owner FROM journal WHERE name = ?`, name).Scan(&h.Ref, &h.Seq, &h.Epoch, &h.Owner)
	if errors.Is(err, sql.ErrNoRows) {
		return h, journal.ErrNotFound
	}
	return h, err
}

// projectOf returns the project's id of a journal's name.
func projectOf(name string) string {
	rest, _ := strings.CutPrefix(name, "projects/")
	project, _, _ := strings.Cut(rest, "/")
	return project
}

// statements cuts a script at its semicolons.
func statements(script string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for statement := range strings.SplitSeq(script, ";") {
			if statement = strings.TrimSpace(statement); statement != "" && !yield(statement) {
				return
			}
		}
	}
}
