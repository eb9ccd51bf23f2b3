package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/evalfleet/evalfleet/pkg/sqlite"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
)

// Load implements [journal.Owners].
func (s *Store) Load(ctx context.Context) (map[string]int, error) {
	load := map[string]int{}
	err := s.db.Read(ctx, func(v *sqlite.View) error {
		clear(load)
		for row, err := range v.Query(`SELECT owner, count(*) FROM journal WHERE open = 1 GROUP BY owner`) {
			var (
				owner string
				n     int
			)
			if err == nil {
				err = row.Scan(&owner, &n)
			}
			if err != nil {
				return err
			}
			load[owner] = n
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("journal: load: %w", err)
	}
	return load, nil
}

// Resume implements [journal.Owners].
func (s *Store) Resume(ctx context.Context, replica string) (newest journal.Ref, err error) {
	err = s.db.Write(ctx, func(tx *sqlite.Tx) error {
		if _, err := tx.Exec(`UPDATE journal SET epoch = epoch + 1 WHERE open = 1 AND owner = ?`, replica); err != nil {
			return err
		}
		return tx.QueryRow(`SELECT coalesce(max(id), 0) FROM journal`).Scan(&newest)
	})
	if err != nil {
		return 0, fmt.Errorf("journal: resume: %w", err)
	}
	return newest, nil
}

// free are the open journals whose owners are not alive.
const free = `SELECT id, owner FROM journal
	WHERE open = 1 AND owner <> ?1 AND owner NOT IN (SELECT value FROM json_each(?2))
	ORDER BY id LIMIT 0 + ?3`

// Claim implements [journal.Owners].
func (s *Store) Claim(ctx context.Context, c journal.Claim) ([]journal.Listed, error) {
	living, _ := json.Marshal(append([]string{c.Replica}, c.Living...)) // Texts always have a JSON form.
	var claimed []journal.Listed
	err := s.db.Write(ctx, func(tx *sqlite.Tx) error {
		claimed = nil
		var all []journal.Head
		for row, err := range tx.Query(free, c.Replica, string(living), c.Limit) {
			var h journal.Head
			if err == nil {
				err = row.Scan(&h.Ref, &h.Owner)
			}
			if err != nil {
				return err
			}
			all = append(all, h)
		}
		for _, before := range all {
			if _, err := tx.Exec(`UPDATE journal SET owner = ?, epoch = epoch + 1 WHERE id = ?`, c.Replica, before.Ref); err != nil {
				return err
			}
			listed, err := one(tx, before.Ref)
			if err != nil {
				return err
			}
			listed.Before = before.Owner
			claimed = append(claimed, listed)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("journal: claim: %w", err)
	}
	return claimed, nil
}

// Take implements [journal.Owners].
func (s *Store) Take(ctx context.Context, head journal.Head, replica string, above int64) (journal.Head, error) {
	taken := journal.Head{Ref: head.Ref}
	err := s.db.Write(ctx, func(tx *sqlite.Tx) error {
		err := tx.QueryRow(`UPDATE journal SET owner = ?1, epoch = max(epoch, ?2) + 1
			WHERE id = ?3 AND epoch = ?4 AND id NOT IN (SELECT id FROM journal_deleted) RETURNING name, head, epoch, owner`,
			replica, above, head.Ref, head.Epoch).Scan(&taken.Name, &taken.Seq, &taken.Epoch, &taken.Owner)
		if errors.Is(err, sql.ErrNoRows) {
			return fenced(tx, head.Ref)
		}
		return err
	})
	if err != nil {
		return journal.Head{}, fmt.Errorf("journal: take %s: %w", head.Name, err)
	}
	return taken, nil
}

// Owned implements [journal.Owners]. It reads one row however many journals there are, since it runs at every beat.
func (s *Store) Owned(ctx context.Context, replica string) ([]journal.Ref, error) {
	var text []byte
	err := s.db.Read(ctx, func(v *sqlite.View) error {
		return v.QueryRow(`SELECT json_group_array(id) FROM (SELECT id FROM journal WHERE open = 1 AND owner = ? ORDER BY id)`, replica).Scan(&text)
	})
	if err != nil {
		return nil, fmt.Errorf("journal: journals of %s: %w", replica, err)
	}
	var refs []journal.Ref
	return refs, json.Unmarshal(text, &refs)
}

// millis writes a time; the zero time is 0.
func millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

func fromMillis(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}
