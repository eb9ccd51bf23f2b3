package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/evalfleet/evalfleet/pkg/sqlite"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
)

const (
	// purgeEvents is how many events one write of Purge deletes, purgeJournals how many journals one write marks. They
	// bound how long other writers wait.
	purgeEvents   = 500
	purgeJournals = 100
	// textsPage is how many stored bodies Texts reads per query. textsBytes bounds their bytes, which the first body
	// may exceed.
	textsPage  = 256
	textsBytes = 16 << 20
)

// Delete implements [journal.Deletion]. The mark in journal_deleted makes it durable; Purge does the rest.
func (s *Store) Delete(ctx context.Context, name string) error {
	var parent string
	err := s.db.Write(ctx, func(tx *sqlite.Tx) error {
		var (
			ref  journal.Ref
			live bool
		)
		err := tx.QueryRow(`SELECT j.id, j.open, coalesce(v.parent, '') FROM journal j LEFT JOIN view_journal v ON v.id = j.id WHERE j.name = ?`, name).Scan(&ref, &live, &parent)
		if errors.Is(err, sql.ErrNoRows) {
			return journal.ErrNotFound
		}
		if err != nil {
			return err
		}
		if live {
			return &journal.InUseError{By: name, Why: journal.ErrOpen}
		}
		if parent != "" {
			_, err := open(&tx.View, parent)
			if err == nil {
				return &journal.InUseError{By: parent, Why: journal.ErrPart}
			}
			if !errors.Is(err, journal.ErrNotFound) {
				return err
			}
		}
		var child string
		err = tx.QueryRow(`SELECT j.name FROM view_journal v JOIN journal j ON j.id = v.id WHERE v.parent = ? AND j.open = 1 LIMIT 1`, name).Scan(&child)
		if err == nil {
			return &journal.InUseError{By: child, Why: journal.ErrOpen}
		}
		if !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		return hide(tx, ref, name)
	})
	if err != nil {
		return fmt.Errorf("journal: delete %s: %w", name, err)
	}
	s.Notify(name)
	s.Notify(parent)
	return nil
}

// hide marks a journal as deleted: it can no longer be found by its name, by a request or in a list.
func hide(tx *sqlite.Tx, ref journal.Ref, name string) error {
	for _, change := range []struct {
		text string
		args []any
	}{
		{`INSERT INTO journal_deleted (id, name) VALUES (?, ?)`, []any{ref, name}},
		{`INSERT INTO journal_unreleased (id, name, at) SELECT ?1, ?2, ?3 WHERE ?2 LIKE 'projects/%/runs/%' ON CONFLICT DO NOTHING`, []any{ref, name, time.Now().UnixNano()}},
		{`UPDATE journal SET name = 'deleted/' || id, epoch = epoch + 1, request = NULL, digest = NULL WHERE id = ?`, []any{ref}},
		{`DELETE FROM view_label WHERE id = ?`, []any{ref}},
		{`DELETE FROM view_journal WHERE id = ?`, []any{ref}},
	} {
		if _, err := tx.Exec(change.text, change.args...); err != nil {
			return err
		}
	}
	return nil
}

// Purge implements [journal.Deletion].
func (s *Store) Purge(ctx context.Context) (more bool, err error) {
	err = s.db.Write(ctx, func(tx *sqlite.Tx) error {
		var (
			ref  journal.Ref
			name string
		)
		// The newest first, so that the children of a journal go before it. A journal that is the base of another stays
		// until that one is gone; its children go.
		err := tx.QueryRow(`SELECT id, name FROM journal_deleted d WHERE empty = 0 AND
			(NOT EXISTS (SELECT 1 FROM journal_base WHERE base = d.id) OR EXISTS (SELECT 1 FROM view_journal WHERE parent = d.name))
			ORDER BY id DESC LIMIT 1`).Scan(&ref, &name)
		if more = err == nil; errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		children, err := childrenOf(tx, name)
		if err != nil {
			return err
		}
		for _, child := range children {
			if err := hide(tx, child.Ref, child.Name); err != nil {
				return err
			}
		}
		if len(children) > 0 {
			return nil
		}
		return purge(tx, ref)
	})
	if err != nil {
		return false, fmt.Errorf("journal: purge: %w", err)
	}
	return more, nil
}

// childrenOf returns some of the children of a journal.
func childrenOf(tx *sqlite.Tx, parent string) (children []journal.Head, err error) {
	for row, err := range tx.Query(`SELECT j.id, j.name FROM view_journal v JOIN journal j ON j.id = v.id WHERE v.parent = ? LIMIT 0 + ?`, parent, purgeJournals) {
		var h journal.Head
		if err == nil {
			err = row.Scan(&h.Ref, &h.Name)
		}
		if err != nil {
			return nil, err
		}
		children = append(children, h)
	}
	return children, nil
}

// purge deletes some events of a journal with the contents that no other event has and, once no event is left, the
// journal itself.
func purge(tx *sqlite.Tx, ref journal.Ref) error {
	var (
		last   sql.NullInt64
		hashes [][]byte
	)
	if err := tx.QueryRow(`SELECT max(seq) FROM (SELECT seq FROM journal_event WHERE journal = ? ORDER BY seq LIMIT 0 + ?)`, ref, purgeEvents).Scan(&last); err != nil {
		return err
	}
	if !last.Valid {
		return forget(tx, ref)
	}
	for row, err := range tx.Query(`SELECT hash FROM journal_event WHERE journal = ? AND seq <= ? AND hash IS NOT NULL`, ref, last.Int64) {
		var hash []byte
		if err == nil {
			err = row.Scan(&hash)
		}
		if err != nil {
			return err
		}
		hashes = append(hashes, hash)
	}
	if _, err := tx.Exec(`DELETE FROM journal_event WHERE journal = ? AND seq <= ?`, ref, last.Int64); err != nil {
		return err
	}
	for _, hash := range hashes {
		if _, err := tx.Exec(`DELETE FROM journal_blob WHERE hash = ?1 AND NOT EXISTS (SELECT 1 FROM journal_event WHERE hash = ?1)`, hash); err != nil {
			return err
		}
	}
	return nil
}

// forget deletes the remainder of a journal without events. The row of the newest journal stays until there is a newer
// one, since the number of a journal must never be reused.
func forget(tx *sqlite.Tx, ref journal.Ref) error {
	for _, change := range []struct {
		text string
		args []any
	}{
		{`DELETE FROM journal_inbox WHERE journal = ?`, []any{ref}},
		{`DELETE FROM journal_base WHERE journal = ?`, []any{ref}},
		{`UPDATE journal_deleted SET empty = 1 WHERE id = ?`, []any{ref}},
		{`DELETE FROM journal WHERE id IN (SELECT id FROM journal_deleted WHERE empty = 1) AND id < (SELECT max(id) FROM journal)`, nil},
		{`DELETE FROM journal_deleted WHERE empty = 1 AND id NOT IN (SELECT id FROM journal)`, nil},
	} {
		if _, err := tx.Exec(change.text, change.args...); err != nil {
			return err
		}
	}
	return nil
}

// Unreleased implements [journal.Deletion].
func (s *Store) Unreleased(ctx context.Context, after journal.Ref, limit int) (runs []journal.Unreleased, err error) {
	err = s.db.Read(ctx, func(v *sqlite.View) error {
		runs = nil
		for row, err := range v.Query(`SELECT id, name, at FROM journal_unreleased WHERE id > ? ORDER BY id LIMIT 0 + ?`, after, limit) {
			var d journal.Unreleased
			var at int64
			if err == nil {
				err = row.Scan(&d.Ref, &d.Name, &at)
			}
			if err != nil {
				return err
			}
			d.At = time.Unix(0, at)
			runs = append(runs, d)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("journal: unreleased: %w", err)
	}
	return runs, nil
}

// Released implements [journal.Deletion].
func (s *Store) Released(ctx context.Context, refs ...journal.Ref) error {
	err := s.db.Write(ctx, func(tx *sqlite.Tx) error {
		for _, ref := range refs {
			if _, err := tx.Exec(`DELETE FROM journal_unreleased WHERE id = ?`, ref); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("journal: released: %w", err)
	}
	return nil
}

// Identity implements [journal.Deletion].
func (s *Store) Identity(ctx context.Context) (id string, used bool, err error) {
	err = s.db.Read(ctx, func(v *sqlite.View) error {
		return v.QueryRow(`SELECT id, EXISTS (SELECT 1 FROM journal) FROM journal_store`).Scan(&id, &used)
	})
	if err != nil {
		return "", false, fmt.Errorf("journal: identity: %w", err)
	}
	return id, used, nil
}

// Texts implements [journal.Deletion].
func (s *Store) Texts(ctx context.Context, after journal.Place, each func([]byte) error) (journal.Place, error) {
	for _, table := range []struct {
		after  *int64
		page   string
		unpack func([]byte) ([]byte, error)
	}{
		{&after.Events, `SELECT off, body FROM journal_event WHERE off > ? ORDER BY off LIMIT 0 + ?`, func(b []byte) ([]byte, error) { return b, nil }},
		{&after.Contents, `SELECT rowid, body FROM journal_blob WHERE rowid > ? ORDER BY rowid LIMIT 0 + ?`, journal.Decompress},
	} {
		for {
			bodies, err := s.bodies(ctx, table.page, table.after)
			if err != nil {
				return after, fmt.Errorf("journal: read all: %w", err)
			}
			if len(bodies) == 0 {
				break
			}
			for _, body := range bodies {
				text, err := table.unpack(body)
				if err != nil {
					text = body
				}
				if err := each(text); err != nil {
					return after, err
				}
			}
		}
	}
	return after, nil
}

// bodies reads a page of stored bodies after a place, which it moves.
func (s *Store) bodies(ctx context.Context, page string, after *int64) (bodies [][]byte, err error) {
	from := *after
	err = s.db.Read(ctx, func(v *sqlite.View) error {
		bodies, *after = nil, from
		size := 0
		for row, err := range v.Query(page, from, textsPage) {
			var (
				body  []byte
				place int64
			)
			if err == nil {
				err = row.Scan(&place, &body)
			}
			if err != nil {
				return err
			}
			if size += len(body); size > textsBytes && len(bodies) > 0 {
				break
			}
			bodies, *after = append(bodies, body), place
		}
		return nil
	})
	return bodies, err
}

// Commands implements [journal.Deletion].
func (s *Store) Commands(ctx context.Context, each func(journal.Command) error) error {
	for after, more := int64(0), true; more; {
		var commands []journal.Command
		err := s.db.Read(ctx, func(v *sqlite.View) error {
			commands = nil
			for row, err := range v.Query(`SELECT id, command, body FROM journal_inbox WHERE seq = 0 AND id > ? ORDER BY id LIMIT 0 + ?`, after, textsPage) {
				var c journal.Command
				if err == nil {
					err = row.Scan(&after, &c.ID, &c.Body)
				}
				if err != nil {
					return err
				}
				commands = append(commands, c)
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("journal: read all commands: %w", err)
		}
		more = len(commands) == textsPage
		for _, c := range commands {
			if err := each(c); err != nil {
				return err
			}
		}
	}
	return nil
}
