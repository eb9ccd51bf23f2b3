package sqlite

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/evalfleet/evalfleet/pkg/resource"
	"github.com/evalfleet/evalfleet/pkg/sqlite"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
)

// Create implements [journal.Journals].
func (s *Store) Create(ctx context.Context, c journal.Creation) (journal.Head, bool, error) {
	packed, err := pack(c.Name, c.Base.Seq, c.Entries)
	if err != nil {
		return journal.Head{}, false, err
	}
	var (
		head    journal.Head
		created bool
	)
	err = s.db.Write(ctx, func(tx *sqlite.Tx) error {
		created = false
		if c.Request != "" {
			known, found, err := byRequest(tx, c.Request, c.Digest)
			if err != nil || found {
				head = known
				return err
			}
		}
		if err := checkUnder(tx, c.Under); err != nil {
			return err
		}
		epoch, err := firstEpoch(tx, c)
		if err != nil {
			return err
		}
		head = journal.Head{Name: c.Name, Seq: c.Base.Seq + int64(len(packed)), Epoch: epoch, Owner: c.Owner}
		result, err := tx.Exec(`INSERT INTO journal (name, head, epoch, owner, open, request, digest) VALUES (?, ?, ?, ?, ?, ?, ?)`,
			c.Name, head.Seq, head.Epoch, c.Owner, !c.Row.Done, sql.NullString{String: c.Request, Valid: c.Request != ""}, c.Digest)
		if err != nil {
			return err
		}
		id, err := result.LastInsertId()
		if err != nil {
			return err
		}
		head.Ref, created = journal.Ref(id), true
		if err := insertEvents(tx, head.Ref, c.Base.Seq, head.Epoch, packed); err != nil {
			return err
		}
		if c.Base != (journal.Base{}) {
			if _, err := tx.Exec(`INSERT INTO journal_base (journal, base, seq) VALUES (?, ?, ?)`, head.Ref, c.Base.Ref, c.Base.Seq); err != nil {
				return err
			}
		}
		if err := insertLabels(tx, head.Ref, c.Row.Labels); err != nil {
			return err
		}
		_, err = setRow(tx, head.Ref, c.Name, &c.Row)
		return err
	})
	if err != nil {
		return journal.Head{}, false, fmt.Errorf("journal: create %s: %w", c.Name, err)
	}
	if created {
		s.Notify(c.Name)
		s.Notify(c.Row.Parent)
		s.Notify(resource.Project(projectOf(c.Name)))
	}
	return head, created, nil
}

// checkUnder refuses the part of a journal that is closed, or has another epoch.
func checkUnder(tx *sqlite.Tx, under journal.Head) error {
	if under == (journal.Head{}) {
		return nil
	}
	var open bool
	err := tx.QueryRow(`SELECT open FROM journal WHERE id = ? AND epoch = ? AND id NOT IN (SELECT id FROM journal_deleted)`, under.Ref, under.Epoch).Scan(&open)
	switch {
	case errors.Is(err, sql.ErrNoRows), err == nil && !open:
		return fenced(tx, under.Ref)
	}
	return err
}

// firstEpoch is the epoch that a journal begins with: no event of its base has a later one.
func firstEpoch(tx *sqlite.Tx, c journal.Creation) (int64, error) {
	if c.Base == (journal.Base{}) {
		return 1, nil
	}
	var base journal.Head
	err := tx.QueryRow(`SELECT name, head, epoch FROM journal WHERE id = ? AND id NOT IN (SELECT id FROM journal_deleted)`, c.Base.Ref).
		Scan(&base.Name, &base.Seq, &base.Epoch)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return 0, fmt.Errorf("base: %w", journal.ErrNotFound)
	case err != nil:
		return 0, err
	case projectOf(base.Name) != projectOf(c.Name):
		return 0, fmt.Errorf("base %s is in another project", base.Name)
	case c.Base.Seq < 1 || c.Base.Seq > base.Seq:
		return 0, fmt.Errorf("base %s has no event %d; its last is %d", base.Name, c.Base.Seq, base.Seq)
	}
	return base.Epoch, nil
}

// byRequest finds the journal that a request made before.
func byRequest(tx *sqlite.Tx, request string, digest []byte) (journal.Head, bool, error) {
	var (
		h      journal.Head
		before []byte
	)
	err := tx.QueryRow(`SELECT id, name, head, epoch, owner, digest FROM journal WHERE request = ?`, request).
		Scan(&h.Ref, &h.Name, &h.Seq, &h.Epoch, &h.Owner, &before)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return h, false, nil
	case err != nil:
		return h, false, err
	case len(digest) > 0 && !bytes.Equal(before, digest):
		return h, false, journal.ErrReused
	}
	return h, true, nil
}

// Append implements [journal.Journals].
func (s *Store) Append(ctx context.Context, a journal.Append) error {
	packed, err := pack(a.Head.Name, a.Head.Seq, a.Entries)
	if err != nil {
		return err
	}
	to, changed := a.Head.Seq+int64(len(packed)), false
	err = s.db.Write(ctx, func(tx *sqlite.Tx) error {
		result, err := tx.Exec(`UPDATE journal SET head = ? WHERE id = ? AND head = ? AND epoch = ?`, to, a.Head.Ref, a.Head.Seq, a.Head.Epoch)
		if err != nil {
			return err
		}
		if n, err := result.RowsAffected(); err != nil || n == 0 {
			return errors.Join(err, fenced(tx, a.Head.Ref))
		}
		if err := insertEvents(tx, a.Head.Ref, a.Head.Seq, a.Head.Epoch, packed); err != nil {
			return err
		}
		for _, id := range a.Took {
			if _, err := tx.Exec(`UPDATE journal_inbox SET seq = ? WHERE journal = ? AND command = ?`, to, a.Head.Ref, id); err != nil {
				return err
			}
		}
		for _, letter := range a.Tell {
			_, err := tx.Exec(`INSERT INTO journal_inbox (journal, command, body) SELECT id, ?, ? FROM journal WHERE name = ? ON CONFLICT DO NOTHING`,
				letter.Command.ID, nonNil(letter.Command.Body), letter.To)
			if err != nil {
				return err
			}
		}
		if a.Row == nil {
			return nil
		}
		if _, err := tx.Exec(`UPDATE journal SET open = ?1 WHERE id = ?2 AND open <> ?1`, !a.Row.Done, a.Head.Ref); err != nil {
			return err
		}
		if a.Row.Done && a.Row.Kind == journal.KindRun {
			_, err := tx.Exec(`INSERT INTO journal_unreleased (id, name, at) VALUES (?, ?, ?) ON CONFLICT DO NOTHING`, a.Head.Ref, a.Head.Name, time.Now().UnixNano())
			if err != nil {
				return err
			}
		}
		changed, err = setRow(tx, a.Head.Ref, a.Head.Name, a.Row)
		return err
	})
	if err != nil {
		return fmt.Errorf("journal: append to %s: %w", a.Head.Name, err)
	}
	s.Notify(a.Head.Name)
	for _, letter := range a.Tell {
		s.Notify(letter.To)
	}
	if a.Row != nil {
		s.Notify(a.Row.Parent)
	}
	if changed {
		s.Notify(resource.Project(projectOf(a.Head.Name)))
	}
	return nil
}

// fenced is the error of an append that was refused.
func fenced(tx *sqlite.Tx, ref journal.Ref) error {
	now := journal.Head{Ref: ref}
	err := tx.QueryRow(`SELECT name, head, epoch, owner FROM journal WHERE id = ? AND id NOT IN (SELECT id FROM journal_deleted)`, ref).
		Scan(&now.Name, &now.Seq, &now.Epoch, &now.Owner)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return &journal.FencedError{}
	case err != nil:
		return err
	}
	return &journal.FencedError{Now: now}
}

// pack packs entries that follow after, outside of the writer.
func pack(name string, after int64, entries []journal.Entry) ([]journal.Packed, error) {
	project := projectOf(name)
	packed := make([]journal.Packed, len(entries))
	for i, e := range entries {
		if e.Event.GetSeq() != after+int64(i)+1 {
			return nil, fmt.Errorf("journal: %s: event %d does not follow %d", name, e.Event.GetSeq(), after+int64(i))
		}
		var err error
		if packed[i], err = journal.Pack(project, e); err != nil {
			return nil, err
		}
	}
	return packed, nil
}

// insertEvents inserts row by row: to SQLite a statement of several rows is a select inside, whose journal costs more
// than the rows.
func insertEvents(tx *sqlite.Tx, ref journal.Ref, after, epoch int64, packed []journal.Packed) error {
	for i, p := range packed {
		if p.Hash != nil {
			if _, err := tx.Exec(`INSERT INTO journal_blob (hash, body) VALUES (?, ?) ON CONFLICT DO NOTHING`, p.Hash, p.Content); err != nil {
				return err
			}
		}
		_, err := tx.Exec(`INSERT INTO journal_event (journal, seq, epoch, same, hash, body) VALUES (?, ?, ?, ?, ?, ?)`,
			ref, after+int64(i)+1, epoch, p.Same, p.Hash, p.Body)
		if err != nil {
			return err
		}
	}
	return nil
}

func insertLabels(tx *sqlite.Tx, ref journal.Ref, labels map[string]string) error {
	for key, value := range labels {
		if _, err := tx.Exec(`INSERT INTO view_label (id, key, value) VALUES (?, ?, ?)`, ref, key, value); err != nil {
			return err
		}
	}
	return nil
}

// setRow writes a journal's row, and reports whether the change is visible to watchers of the project. Only then it
// gets a new number, and an entry in the index of changes.
func setRow(tx *sqlite.Tx, ref journal.Ref, name string, row *journal.Row) (changed bool, err error) {
	result, err := tx.Exec(`UPDATE view_journal SET waiting = ?, wake = ?, since = ?, view = ? WHERE id = ? AND state = ? AND reason = ?`,
		row.Waiting, millis(row.Wake), millis(row.WaitSince), nonNil(row.View), ref, row.State, row.WaitReason)
	if err != nil {
		return false, err
	}
	if same, err := result.RowsAffected(); err != nil || same > 0 {
		return false, err
	}
	if _, err := tx.Exec(`UPDATE journal_store SET changes = changes + 1`); err != nil {
		return false, err
	}
	_, err = tx.Exec(`INSERT INTO view_journal (id, project, kind, state, parent, waiting, wake, reason, since, changed, view)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, (SELECT changes FROM journal_store), ?)
		ON CONFLICT (id) DO UPDATE SET state = excluded.state, waiting = excluded.waiting, wake = excluded.wake, reason = excluded.reason, since = excluded.since,
			changed = excluded.changed, view = excluded.view`,
		ref, projectOf(name), row.Kind, row.State, row.Parent, row.Waiting, millis(row.Wake), row.WaitReason, millis(row.WaitSince), nonNil(row.View))
	return true, err
}

func nonNil(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// labelsJSON writes labels for a query.
func labelsJSON(labels map[string]string) string {
	b, _ := json.Marshal(labels) // a map of strings always has a JSON form
	return string(b)
}
