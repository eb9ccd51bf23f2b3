package sqlite

import (
	"context"
	"fmt"
	"time"

	"github.com/evalfleet/evalfleet/pkg/sqlite"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
)

// Beat implements [journal.Owners].
func (s *Store) Beat(ctx context.Context, replica string, now time.Time) error {
	err := s.db.Write(ctx, func(tx *sqlite.Tx) error {
		_, err := tx.Exec(`INSERT INTO journal_replica (name, beat) VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET beat = ?2`, replica, millis(now))
		return err
	})
	if err != nil {
		return fmt.Errorf("journal: beat of %s: %w", replica, err)
	}
	return nil
}

// orphans are the open journals that a replica may take.
const orphans = `SELECT j.id FROM journal j LEFT JOIN journal_replica r ON r.name = j.owner
	WHERE j.open = 1 AND j.id > ?2 AND CASE WHEN j.owner = ?1 THEN ?3 ELSE coalesce(r.beat, 0) < ?4 END
	ORDER BY j.id LIMIT 0 + ?5`

// Adopt implements [journal.Owners].
func (s *Store) Adopt(ctx context.Context, a journal.Adoption) ([]journal.Listed, error) {
	var adopted []journal.Listed
	err := s.db.Write(ctx, func(tx *sqlite.Tx) error {
		adopted = nil
		var refs []journal.Ref
		for row, err := range tx.Query(orphans, a.Replica, a.After, a.Own, millis(a.DeadSince), a.Limit) {
			var ref journal.Ref
			if err == nil {
				err = row.Scan(&ref)
			}
			if err != nil {
				return err
			}
			refs = append(refs, ref)
		}
		for _, ref := range refs {
			if _, err := tx.Exec(`UPDATE journal SET owner = ?, epoch = epoch + 1 WHERE id = ?`, a.Replica, ref); err != nil {
				return err
			}
			listed, err := one(tx, ref)
			if err != nil {
				return err
			}
			adopted = append(adopted, listed)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("journal: adopt: %w", err)
	}
	return adopted, nil
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
