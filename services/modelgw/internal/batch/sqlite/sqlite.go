// Package sqlite keeps batches in a SQLite database that others may share. Every change is one group-committed write.
package sqlite

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/evalfleet/evalfleet/pkg/effect"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	store "github.com/evalfleet/evalfleet/pkg/sqlite"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/batch"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

// schema lists the steps, which are append-only. Times are in nanoseconds since 1970; states and phases are the numbers
// of package batch.
var schema = []string{`
CREATE TABLE modelgw_batch_groups (
	id      TEXT PRIMARY KEY,
	of_group BLOB NOT NULL,       -- batch.Group as JSON
	setting BLOB NOT NULL         -- BatchSetting
) WITHOUT ROWID;
CREATE TABLE modelgw_batch_riders (
	id         INTEGER PRIMARY KEY AUTOINCREMENT, -- the vendor is sent it, so it is never used again
	project    TEXT    NOT NULL,
	key        TEXT    NOT NULL,  -- empty: a call without one
	owner      TEXT    NOT NULL,  -- the process of a call without a key
	hash       BLOB    NOT NULL,
	of_group   TEXT    NOT NULL,
	size       INTEGER NOT NULL,
	state      INTEGER NOT NULL,
	batch      TEXT    NOT NULL DEFAULT '',
	status     INTEGER NOT NULL DEFAULT 0,
	created_at INTEGER NOT NULL
);
CREATE INDEX modelgw_batch_riders_key ON modelgw_batch_riders (project, key);
CREATE INDEX modelgw_batch_riders_state ON modelgw_batch_riders (state, of_group);
CREATE INDEX modelgw_batch_riders_batch ON modelgw_batch_riders (batch);
CREATE TABLE modelgw_batch_bodies (
	rider  INTEGER PRIMARY KEY,
	body   BLOB,                  -- NULL once the batch has ended
	answer BLOB
);
CREATE TABLE modelgw_batches (
	seq        INTEGER PRIMARY KEY AUTOINCREMENT,
	id         TEXT    NOT NULL UNIQUE,
	of_group   TEXT    NOT NULL,
	project    TEXT    NOT NULL,
	model      TEXT    NOT NULL,
	account    TEXT    NOT NULL,
	vendor_id  TEXT    NOT NULL DEFAULT '',
	guessed    INTEGER NOT NULL DEFAULT 0,
	not_these  TEXT    NOT NULL DEFAULT '',
	phase      INTEGER NOT NULL,
	requests   INTEGER NOT NULL,
	completed  INTEGER NOT NULL DEFAULT 0,
	failed     INTEGER NOT NULL DEFAULT 0,
	cancelled  INTEGER NOT NULL DEFAULT 0,
	error      TEXT    NOT NULL DEFAULT '',
	created_at INTEGER NOT NULL,
	over_at    INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE modelgw_batch_leader (
	one   INTEGER PRIMARY KEY CHECK (one = 1),
	owner TEXT    NOT NULL
);
CREATE INDEX modelgw_batches_phase ON modelgw_batches (phase, of_group);
CREATE INDEX modelgw_batches_project ON modelgw_batches (project, seq);`}

// Store implements [batch.Store].
type Store struct{ db *store.DB }

var _ batch.Store = (*Store)(nil)

// New returns the store in db, and makes or migrates its tables. db stays the caller's to close.
func New(ctx context.Context, db *store.DB) (*Store, error) {
	if err := db.Migrate(ctx, "modelgw/batch", schema); err != nil {
		return nil, err
	}
	return &Store{db}, nil
}

const (
	riderColumns = "SELECT id, project, key, owner, hash, of_group, size, state, batch, status, created_at FROM modelgw_batch_riders "
	batchColumns = "SELECT id, of_group, project, model, account, vendor_id, guessed, not_these, phase, requests, completed, failed, cancelled, error, created_at, over_at FROM modelgw_batches "
)

func scanRider(row store.Row) (r batch.Rider, err error) {
	var hash []byte
	var created int64
	err = row.Scan(&r.ID, &r.Key.Project, &r.Key.ID, &r.Owner, &hash, &r.Group, &r.Size, &r.State, &r.Batch, &r.Result.Status, &created)
	copy(r.Hash[:], hash)
	r.Created = time.Unix(0, created)
	return r, found(err)
}

func scanBatch(row store.Row) (b batch.Batch, err error) {
	var not string
	var created, over int64
	err = row.Scan(
		&b.ID, &b.Group, &b.Project, &b.Model, &b.Account, &b.VendorID, &b.Guessed, &not, &b.Phase,
		&b.Requests, &b.Completed, &b.Failed, &b.Cancelled, &b.Error, &created, &over,
	)
	if not != "" {
		b.NotThese = strings.Split(not, "\n")
	}
	b.Created = time.Unix(0, created)
	if over != 0 {
		b.Over = time.Unix(0, over)
	}
	return b, found(err)
}

func found(err error) error {
	if errors.Is(err, sql.ErrNoRows) {
		return batch.ErrNotFound
	}
	return err
}

// all reads the rows of a query.
func all[T any](v *store.View, scan func(store.Row) (T, error), query string, args ...any) ([]T, error) {
	var rows []T
	for row, err := range v.Query(query, args...) {
		if err != nil {
			return nil, err
		}
		one, err := scan(row)
		if err != nil {
			return nil, err
		}
		rows = append(rows, one)
	}
	return rows, nil
}

// read is all within a transaction of its own.
func read[T any](ctx context.Context, s *Store, scan func(store.Row) (T, error), query string, args ...any) (rows []T, err error) {
	err = s.db.Read(ctx, func(v *store.View) error {
		rows, err = all(v, scan, query, args...)
		return err
	})
	return rows, err
}

func scanOne[T any](row store.Row) (one T, err error) {
	return one, found(row.Scan(&one))
}

// Join implements [batch.Store].
func (s *Store) Join(ctx context.Context, of batch.Group, setting *modelv1.BatchSetting, key effect.Key, owner string, body []byte) (r batch.Rider, err error) {
	hash, id, now := sha256.Sum256(body), of.ID(), time.Now()
	group, err := json.Marshal(of)
	if err != nil {
		return r, err
	}
	chosen, err := proto.Marshal(setting)
	if err != nil {
		return r, err
	}
	err = s.db.Write(ctx, func(tx *store.Tx) error {
		if key.ID != "" {
			var err error
			r, err = scanRider(tx.QueryRow(riderColumns+"WHERE project = ?1 AND key = ?2 AND hash = ?3 AND state <= ?4 ORDER BY id LIMIT 1", key.Project, key.ID, hash[:], batch.Answered))
			if !errors.Is(err, batch.ErrNotFound) {
				if err == nil {
					err = readAnswer(&tx.View, &r)
				}
				return err
			}
		}
		if _, err := tx.Exec("INSERT INTO modelgw_batch_groups (id, of_group, setting) VALUES (?1, ?2, ?3) ON CONFLICT (id) DO UPDATE SET setting = ?3", id, group, chosen); err != nil {
			return err
		}
		added, err := tx.Exec("INSERT INTO modelgw_batch_riders (project, key, owner, hash, of_group, size, state, created_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
			key.Project, key.ID, owner, hash[:], id, len(body), batch.Waiting, now.UnixNano())
		if err != nil {
			return err
		}
		r = batch.Rider{Group: id, Key: key, Owner: owner, Hash: hash, Size: int64(len(body)), State: batch.Waiting, Created: now}
		if r.ID, err = added.LastInsertId(); err != nil {
			return err
		}
		_, err = tx.Exec("INSERT INTO modelgw_batch_bodies (rider, body) VALUES (?, ?)", r.ID, body)
		return err
	})
	return r, err
}

// readAnswer adds the answer of a rider, if there is one.
func readAnswer(v *store.View, r *batch.Rider) error {
	if r.State < batch.Answered {
		return nil
	}
	return v.QueryRow("SELECT answer FROM modelgw_batch_bodies WHERE rider = ?", r.ID).Scan(&r.Result.Body)
}

// Rider implements [batch.Store].
func (s *Store) Rider(ctx context.Context, id int64) (r batch.Rider, err error) {
	err = s.db.Read(ctx, func(v *store.View) error {
		if r, err = scanRider(v.QueryRow(riderColumns+"WHERE id = ?", id)); err != nil {
			return err
		}
		return readAnswer(v, &r)
	})
	return r, err
}

// OfKey implements [batch.Store].
func (s *Store) OfKey(ctx context.Context, key effect.Key) ([]batch.Rider, error) {
	riders, err := read(ctx, s, scanRider, riderColumns+"WHERE project = ? AND key = ? ORDER BY id", key.Project, key.ID)
	for i := range riders {
		if riders[i].State != batch.Told {
			riders[i].Result = provider.BatchResult{}
		}
	}
	return riders, err
}

// Tell implements [batch.Store].
func (s *Store) Tell(ctx context.Context, id int64) error {
	return s.db.Write(ctx, func(tx *store.Tx) error {
		_, err := tx.Exec("UPDATE modelgw_batch_riders SET state = ?2 WHERE id = ?1", id, batch.Told)
		return err
	})
}

// Leave implements [batch.Store].
func (s *Store) Leave(ctx context.Context, ids ...int64) error {
	return s.db.Write(ctx, func(tx *store.Tx) error { return leave(tx, ids) })
}

func leave(tx *store.Tx, ids []int64) error {
	for _, id := range ids {
		if _, err := tx.Exec("UPDATE modelgw_batch_riders SET state = ?2, key = '' WHERE id = ?1 AND state = ?3", id, batch.Left, batch.Sent); err != nil {
			return err
		}
		if _, err := tx.Exec("DELETE FROM modelgw_batch_riders WHERE id = ? AND state NOT IN (?, ?)", id, batch.Sent, batch.Left); err != nil {
			return err
		}
		if _, err := tx.Exec("DELETE FROM modelgw_batch_bodies WHERE rider = ?1 AND NOT EXISTS (SELECT 1 FROM modelgw_batch_riders WHERE id = ?1)", id); err != nil {
			return err
		}
	}
	return nil
}

// LeaveRuns implements [batch.Store].
func (s *Store) LeaveRuns(ctx context.Context, project string, runs ...string) (keys []effect.Key, err error) {
	err = s.db.Write(ctx, func(tx *store.Tx) error {
		keys = nil
		for _, run := range runs {
			// "0" follows "/", so these are the keys that begin with the run's id and a slash.
			riders, err := all(&tx.View, scanRider, riderColumns+"WHERE project = ?1 AND key >= ?2 || '/' AND key < ?2 || '0'", project, run)
			if err != nil {
				return err
			}
			var ids []int64
			for _, r := range riders {
				ids, keys = append(ids, r.ID), append(keys, r.Key)
			}
			if err := leave(tx, ids); err != nil {
				return err
			}
		}
		return nil
	})
	return keys, err
}

// Lead implements [batch.Store].
func (s *Store) Lead(ctx context.Context, owner, dead string) (leader string, err error) {
	const query = "SELECT owner FROM modelgw_batch_leader"
	err = s.db.Read(ctx, func(v *store.View) error { return found(v.QueryRow(query).Scan(&leader)) })
	if err == nil && leader != dead || err != nil && !errors.Is(err, batch.ErrNotFound) {
		return leader, err
	}
	err = s.db.Write(ctx, func(tx *store.Tx) error {
		if _, err := tx.Exec("INSERT INTO modelgw_batch_leader (one, owner) VALUES (1, ?1) ON CONFLICT (one) DO UPDATE SET owner = ?1 WHERE owner = ?2", owner, dead); err != nil {
			return err
		}
		return tx.QueryRow(query).Scan(&leader)
	})
	return leader, err
}

// Group implements [batch.Store].
func (s *Store) Group(ctx context.Context, id string) (of batch.Group, setting *modelv1.BatchSetting, err error) {
	var group, chosen []byte
	err = s.db.Read(ctx, func(v *store.View) error {
		return found(v.QueryRow("SELECT of_group, setting FROM modelgw_batch_groups WHERE id = ?", id).Scan(&group, &chosen))
	})
	if err != nil {
		return of, nil, err
	}
	setting = &modelv1.BatchSetting{}
	return of, setting, errors.Join(json.Unmarshal(group, &of), proto.Unmarshal(chosen, setting))
}

// Busy implements [batch.Store].
func (s *Store) Busy(ctx context.Context) ([]string, error) {
	return read(ctx, s, scanOne[string], "SELECT of_group FROM modelgw_batch_riders WHERE state = ?1 UNION SELECT of_group FROM modelgw_batches WHERE phase < ?2 ORDER BY 1", batch.Waiting, batch.Ended)
}

// Pending implements [batch.Store].
func (s *Store) Pending(ctx context.Context) ([]batch.Rider, error) {
	return read(ctx, s, scanRider, riderColumns+"WHERE state BETWEEN ? AND ? ORDER BY id", batch.Waiting, batch.Sent)
}

// WaitingIn implements [batch.Store].
func (s *Store) WaitingIn(ctx context.Context, group string) ([]batch.Rider, error) {
	return read(ctx, s, scanRider, riderColumns+"WHERE of_group = ? AND state = ? ORDER BY id", group, batch.Waiting)
}

// Begin implements [batch.Store].
func (s *Store) Begin(ctx context.Context, b batch.Batch, riders []int64) (batch.Batch, error) {
	err := s.db.Write(ctx, func(tx *store.Tx) error {
		b.Requests, b.Phase = 0, batch.Intended
		for _, id := range riders {
			moved, err := tx.Exec("UPDATE modelgw_batch_riders SET state = ?2, batch = ?3 WHERE id = ?1 AND state = ?4", id, batch.Sent, b.ID, batch.Waiting)
			if err != nil {
				return err
			}
			n, err := moved.RowsAffected()
			if err != nil {
				return err
			}
			b.Requests += int(n)
		}
		if b.Requests == 0 {
			return nil
		}
		_, err := tx.Exec("INSERT INTO modelgw_batches (id, of_group, project, model, account, phase, requests, created_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
			b.ID, b.Group, b.Project, b.Model, b.Account, b.Phase, b.Requests, b.Created.UnixNano())
		return err
	})
	return b, err
}

// Lines implements [batch.Store].
func (s *Store) Lines(ctx context.Context, of string) (map[int64]int64, error) {
	lines := map[int64]int64{}
	err := s.db.Read(ctx, func(v *store.View) error {
		clear(lines)
		for row, err := range v.Query("SELECT r.id, r.size FROM modelgw_batch_riders r JOIN modelgw_batch_bodies b ON b.rider = r.id WHERE r.batch = ? AND b.body IS NOT NULL", of) {
			if err != nil {
				return err
			}
			var id, size int64
			if err := row.Scan(&id, &size); err != nil {
				return err
			}
			lines[id] = size
		}
		return nil
	})
	return lines, err
}

// Body implements [batch.Store].
func (s *Store) Body(ctx context.Context, id int64) (body []byte, err error) {
	err = s.db.Read(ctx, func(v *store.View) error {
		return found(v.QueryRow("SELECT body FROM modelgw_batch_bodies WHERE rider = ? AND body IS NOT NULL", id).Scan(&body))
	})
	return body, err
}

// Living implements [batch.Store].
func (s *Store) Living(ctx context.Context, of string) (int, error) {
	counted, err := read(ctx, s, scanOne[int], "SELECT count(*) FROM modelgw_batch_riders WHERE batch = ? AND state = ?", of, batch.Sent)
	if err != nil {
		return 0, err
	}
	return counted[0], nil
}

// Update implements [batch.Store].
func (s *Store) Update(ctx context.Context, b batch.Batch) error {
	over := int64(0)
	if !b.Over.IsZero() {
		over = b.Over.UnixNano()
	}
	return s.db.Write(ctx, func(tx *store.Tx) error {
		changed, err := tx.Exec("UPDATE modelgw_batches SET vendor_id = ?2, not_these = ?3, phase = ?4, completed = ?5, failed = ?6, error = ?7, over_at = ?8, guessed = ?9 WHERE id = ?1",
			b.ID, b.VendorID, strings.Join(b.NotThese, "\n"), b.Phase, b.Completed, b.Failed, b.Error, over, b.Guessed)
		if err != nil {
			return err
		}
		if n, err := changed.RowsAffected(); err != nil || n == 0 {
			return errors.Join(err, fmt.Errorf("%w: %s", batch.ErrNotFound, b.ID))
		}
		if b.Phase != batch.Ended {
			return nil
		}
		for _, statement := range []string{
			"DELETE FROM modelgw_batch_bodies WHERE rider IN (SELECT id FROM modelgw_batch_riders WHERE batch = ? AND state = 5)",
			"DELETE FROM modelgw_batch_riders WHERE batch = ? AND state = 5",
			"UPDATE modelgw_batch_bodies SET body = NULL WHERE rider IN (SELECT id FROM modelgw_batch_riders WHERE batch = ?)",
		} {
			if _, err := tx.Exec(statement, b.ID); err != nil {
				return err
			}
		}
		return nil
	})
}

// RequestCancel implements [batch.Store].
func (s *Store) RequestCancel(ctx context.Context, project, id string) (b batch.Batch, err error) {
	err = s.db.Write(ctx, func(tx *store.Tx) error {
		if _, err := tx.Exec("UPDATE modelgw_batches SET cancelled = 1 WHERE id = ? AND project = ? AND phase < ?", id, project, batch.Ended); err != nil {
			return err
		}
		var err error
		b, err = scanBatch(tx.QueryRow(batchColumns+"WHERE id = ? AND project = ?", id, project))
		return err
	})
	return b, err
}

// Settle implements [batch.Store].
func (s *Store) Settle(ctx context.Context, of string, results map[int64]provider.BatchResult) (keys []effect.Key, err error) {
	err = s.db.Write(ctx, func(tx *store.Tx) error {
		keys = nil
		for _, id := range slices.Sorted(maps.Keys(results)) {
			r, err := scanRider(tx.QueryRow(riderColumns+"WHERE id = ? AND batch = ? AND state = ?", id, of, batch.Sent))
			if errors.Is(err, batch.ErrNotFound) {
				continue
			}
			if err != nil {
				return err
			}
			if _, err := tx.Exec("UPDATE modelgw_batch_riders SET state = ?2, status = ?3 WHERE id = ?1", id, batch.Answered, results[id].Status); err != nil {
				return err
			}
			if _, err := tx.Exec("UPDATE modelgw_batch_bodies SET answer = ?2 WHERE rider = ?1", id, results[id].Body); err != nil {
				return err
			}
			keys = append(keys, r.Key)
		}
		return nil
	})
	return keys, err
}

// Unsettled implements [batch.Store].
func (s *Store) Unsettled(ctx context.Context, of string) ([]int64, error) {
	return read(ctx, s, scanOne[int64], "SELECT id FROM modelgw_batch_riders WHERE batch = ? AND state = ? ORDER BY id", of, batch.Sent)
}

// OpenIn implements [batch.Store].
func (s *Store) OpenIn(ctx context.Context, group string) ([]batch.Batch, error) {
	return read(ctx, s, scanBatch, batchColumns+"WHERE of_group = ? AND phase < ? ORDER BY seq", group, batch.Ended)
}

// List implements [batch.Store].
func (s *Store) List(ctx context.Context, project, before string, limit int) ([]batch.Batch, error) {
	return read(ctx, s, scanBatch, batchColumns+`WHERE (?1 = '' OR project = ?1)
		AND (?2 = '' OR seq < (SELECT seq FROM modelgw_batches WHERE id = ?2)) ORDER BY seq DESC LIMIT ?3`, project, before, limit)
}

// Expire implements [batch.Store].
func (s *Store) Expire(ctx context.Context, before time.Time) error {
	return s.db.Write(ctx, func(tx *store.Tx) error {
		at := before.UnixNano()
		ids, err := all(&tx.View, scanOne[int64], `SELECT id FROM modelgw_batch_riders WHERE state BETWEEN ?1 AND ?2 AND created_at < ?3
			AND batch NOT IN (SELECT id FROM modelgw_batches WHERE phase < ?4 OR over_at >= ?3)`, batch.Answered, batch.Told, at, batch.Ended)
		if err == nil {
			err = leave(tx, ids)
		}
		if err == nil {
			_, err = tx.Exec("DELETE FROM modelgw_batch_groups WHERE id NOT IN (SELECT of_group FROM modelgw_batch_riders) AND id NOT IN (SELECT of_group FROM modelgw_batches)")
		}
		if err == nil {
			_, err = tx.Exec("DELETE FROM modelgw_batches WHERE phase = ? AND over_at < ?", batch.Ended, at)
		}
		return err
	})
}
