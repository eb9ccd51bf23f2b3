package sqlite

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/evalfleet/evalfleet/pkg/sqlite"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
)

// Post implements [journal.Inbox].
func (s *Store) Post(ctx context.Context, name string, c journal.Command) error {
	err := s.db.Write(ctx, func(tx *sqlite.Tx) error {
		head, err := open(&tx.View, name)
		if err != nil {
			return err
		}
		var before []byte
		err = tx.QueryRow(`SELECT body FROM journal_inbox WHERE journal = ? AND command = ?`, head.Ref, c.ID).Scan(&before)
		switch {
		case err == nil && bytes.Equal(before, c.Body):
			return nil
		case err == nil:
			return journal.ErrReused
		case !errors.Is(err, sql.ErrNoRows):
			return err
		}
		_, err = tx.Exec(`INSERT INTO journal_inbox (journal, command, body) VALUES (?, ?, ?)`, head.Ref, c.ID, nonNil(c.Body))
		return err
	})
	if err != nil {
		return fmt.Errorf("journal: post to %s: %w", name, err)
	}
	return nil
}

// Pending implements [journal.Inbox].
func (s *Store) Pending(ctx context.Context, ref journal.Ref) ([]journal.Command, error) {
	var pending []journal.Command
	err := s.db.Read(ctx, func(v *sqlite.View) error {
		pending = nil
		for row, err := range v.Query(`SELECT command, body FROM journal_inbox WHERE journal = ? AND seq = 0 ORDER BY id`, ref) {
			var c journal.Command
			if err == nil {
				err = row.Scan(&c.ID, &c.Body)
			}
			if err != nil {
				return err
			}
			pending = append(pending, c)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("journal: pending commands: %w", err)
	}
	return pending, nil
}

// Taken implements [journal.Inbox].
func (s *Store) Taken(ctx context.Context, name, id string) (int64, error) {
	var seq int64
	err := s.db.Read(ctx, func(v *sqlite.View) error {
		err := v.QueryRow(`SELECT i.seq FROM journal_inbox i JOIN journal j ON j.id = i.journal WHERE j.name = ? AND i.command = ?`, name, id).Scan(&seq)
		if errors.Is(err, sql.ErrNoRows) {
			return journal.ErrNotFound
		}
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("journal: command %s of %s: %w", id, name, err)
	}
	return seq, nil
}

// Mail implements [journal.Inbox].
func (s *Store) Mail(ctx context.Context, owner string) ([]journal.Mailbox, error) {
	var boxes []journal.Mailbox
	err := s.db.Read(ctx, func(v *sqlite.View) error {
		boxes = nil
		// From the commands to their journals, which may be many: the query runs at every beat.
		for row, err := range v.Query(`SELECT j.name, max(i.id) FROM journal_inbox i CROSS JOIN journal j ON j.id = i.journal
			WHERE i.seq = 0 AND j.open = 1 AND j.owner = ? GROUP BY i.journal`, owner) {
			var box journal.Mailbox
			if err == nil {
				err = row.Scan(&box.Name, &box.Newest)
			}
			if err != nil {
				return err
			}
			boxes = append(boxes, box)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("journal: mail of %s: %w", owner, err)
	}
	return boxes, nil
}
