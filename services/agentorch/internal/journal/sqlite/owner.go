package sqlite

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/evalfleet/evalfleet/pkg/sqlite"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
)

// Beat implements [journal.Owners]. A replica that has handed its journals over has the negative of its last beat, so
// that it counts as dead.
func (s *Store) Beat(ctx context.Context, replica string, now time.Time) error {
	err := s.db.Write(ctx, func(tx *sqlite.Tx) error {
		_, err := tx.Exec(`INSERT INTO journal_replica (name, beat) VALUES (?1, ?2) 
			ON CONFLICT (name) DO UPDATE SET beat = CASE ?2 WHEN 0 THEN -abs(beat) ELSE ?2 END`, replica, millis(now))
		return err
	})
	if err != nil {
		return fmt.Errorf("journal: beat of %s: %w", replica, err)
	}
	return nil
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

// LastBeat implements [journal.Owners].
func (s *Store) LastBeat(ctx context.Context, replica string) (last time.Time, err error) {
	var ms int64
	err = s.db.Read(ctx, func(v *sqlite.View) error {
		return v.QueryRow(`SELECT coalesce(max(abs(beat)), 0) FROM journal_replica WHERE name = ?`, replica).Scan(&ms)
	})
	if err != nil {
		return last, fmt.Errorf("journal: last beat of %s: %w", replica, err)
	}
	return fromMillis(ms), nil
}

// orphans are the open journals of dead replicas.
const orphans = `SELECT j.id, coalesce(abs(r.beat), 0) FROM journal j LEFT JOIN journal_replica r ON r.name = j.owner
	WHERE j.open = 1 AND j.id > ?2 AND j.owner <> ?1 AND coalesce(r.beat, 0) < ?3
	ORDER BY j.id LIMIT 0 + ?4`

// Adopt implements [journal.Owners].
func (s *Store) Adopt(ctx context.Context, a journal.Adoption) ([]journal.Listed, error) {
	var adopted []journal.Listed
	err := s.db.Write(ctx, func(tx *sqlite.Tx) error {
		adopted = nil
		var refs []journal.Ref
		var beats []int64
		for row, err := range tx.Query(orphans, a.Replica, a.After, millis(a.DeadSince), a.Limit) {
			var ref journal.Ref
			var beat int64
			if err == nil {
				err = row.Scan(&ref, &beat)
			}
			if err != nil {
				return err
			}
			refs, beats = append(refs, ref), append(beats, beat)
		}
		for i, ref := range refs {
			if _, err := tx.Exec(`UPDATE journal SET owner = ?, epoch = epoch + 1 WHERE id = ?`, a.Replica, ref); err != nil {
				return err
			}
			listed, err := one(tx, ref)
			if err != nil {
				return err
			}
			listed.Beaten = fromMillis(beats[i])
			adopted = append(adopted, listed)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("journal: adopt: %w", err)
	}
	return adopted, nil
}

// Owned implements [journal.Owners]. It reads one row however many there are, since it is asked at every beat.
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
