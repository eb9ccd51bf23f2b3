// Package sqlite is the effect ledger in a SQLite database that it may share with others. A claim and a result are one
// group-committed write each, on disk once they are acknowledged.
package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/evalfleet/evalfleet/pkg/effect"
	store "github.com/evalfleet/evalfleet/pkg/sqlite"
)

// Ledger keeps claims in one table and results in a second, so that a claim's row stays small: it is rewritten at every
// step, and a restart reads them all.
type Ledger struct {
	db *store.DB
	q  queries
}

var _ effect.Ledger = (*Ledger)(nil)

var tableName = regexp.MustCompile(`^[a-z][a-z0-9_]{0,39}$`)

// New returns the ledger of one service in db, in a table named table (lower-case letters, digits and underscores), and
// makes or migrates it. Two services sharing a database use two names. db stays the caller's to close.
func New(ctx context.Context, db *store.DB, table string) (*Ledger, error) {
	if !tableName.MatchString(table) {
		return nil, fmt.Errorf("effect: invalid table name %q", table)
	}
	in := func(text string) string { return strings.ReplaceAll(text, "effects", table) }
	steps := make([]string, len(schema))
	for i, step := range schema {
		steps[i] = in(step)
	}
	if err := db.Migrate(ctx, "effect/"+table, steps); err != nil {
		return nil, err
	}
	return &Ledger{db: db, q: queriesIn(in)}, nil
}

// Claim implements [effect.Ledger].
func (l *Ledger) Claim(ctx context.Context, key effect.Key, hash effect.Hash, owner string, epoch int64) (rec effect.Record, started bool, err error) {
	if err := key.Validate(); err != nil {
		return rec, false, err
	}
	now := time.Now()
	err = l.db.Write(ctx, func(tx *store.Tx) error {
		if err := l.fence(tx, key, epoch); err != nil {
			return err
		}
		n, err := affected(tx.Exec(l.q.insert, key.Project, key.ID, hash[:], effect.Running, owner, now.UnixNano()))
		if err != nil {
			return err
		}
		if started = n > 0; started {
			rec = effect.Record{Key: key, Hash: hash, State: effect.Running, Owner: owner, Claimed: now, Changed: now}
			return nil
		}
		if rec, err = l.find(&tx.View, key); err != nil {
			return err
		}
		switch {
		case rec.State == effect.Cancelled:
			return nil
		case rec.Hash != hash:
			return fmt.Errorf("%w: %v", effect.ErrContentMismatch, key)
		case rec.State != effect.Dropped && rec.State != effect.Yielded:
			return nil
		}
		started = true
		rec.State, rec.Owner, rec.Changed = effect.Running, owner, now
		_, err = tx.Exec(l.q.own, key.Project, key.ID, owner, rec.Reissues, now.UnixNano())
		return err
	})
	if err != nil {
		return effect.Record{}, false, err
	}
	return rec, started, nil
}

// Fence implements [effect.Ledger].
func (l *Ledger) Fence(ctx context.Context, key effect.Key, epoch int64) error {
	return l.write(ctx, key, func(tx *store.Tx) error { return l.fence(tx, key, epoch) })
}

// fence compares an epoch with the newest of its run, and keeps a newer one.
func (l *Ledger) fence(tx *store.Tx, key effect.Key, epoch int64) error {
	if epoch == 0 {
		return nil
	}
	var (
		known    int64
		released bool
	)
	if err := tx.QueryRow(l.q.epoch, key.Project, key.Run()).Scan(&known, &released); err != nil {
		return err
	}
	switch {
	case epoch >= known && released:
		return fmt.Errorf("%w: %v", effect.ErrReleased, key)
	case epoch == known:
		return nil
	case epoch < known:
		return &effect.SupersededError{Key: key, Epoch: known}
	}
	_, err := tx.Exec(l.q.raise, key.Project, key.Run(), epoch, time.Now().UnixNano())
	return err
}

// Finish implements [effect.Ledger].
func (l *Ledger) Finish(ctx context.Context, key effect.Key, owner string, outcome effect.Outcome) error {
	return l.write(ctx, key, func(tx *store.Tx) error {
		if len(outcome.Body) == 0 {
			return l.leave(tx, l.q.leave, key, owner, outcome.State)
		}
		if err := l.leave(tx, l.q.finish, key, owner, outcome.State); err != nil {
			return err
		}
		_, err := tx.Exec(l.q.insertBody, outcome.Body)
		return err
	})
}

// Drop implements [effect.Ledger].
func (l *Ledger) Drop(ctx context.Context, key effect.Key, owner string) error {
	return l.write(ctx, key, func(tx *store.Tx) error {
		return l.leave(tx, l.q.leave, key, owner, effect.Dropped)
	})
}

// Yield implements [effect.Ledger].
func (l *Ledger) Yield(ctx context.Context, owner string, keys ...effect.Key) error {
	now := time.Now().UnixNano()
	return l.db.Write(ctx, func(tx *store.Tx) error {
		for _, key := range keys {
			if _, err := tx.Exec(l.q.yield, key.Project, key.ID, owner, now); err != nil {
				return err
			}
		}
		return nil
	})
}

// Reclaim implements [effect.Ledger].
func (l *Ledger) Reclaim(ctx context.Context, key effect.Key, from, to string) (rec effect.Record, err error) {
	err = l.write(ctx, key, func(tx *store.Tx) error {
		if rec, err = l.find(&tx.View, key); err != nil {
			return err
		}
		if rec.Owner != from || rec.State != effect.Running {
			err, rec = notHeld(rec), effect.Record{}
			return err
		}
		now := time.Now()
		rec.Owner, rec.Changed = to, now
		rec.Reissues++
		_, err := tx.Exec(l.q.own, key.Project, key.ID, to, rec.Reissues, now.UnixNano())
		return err
	})
	return rec, err
}

// Cancel implements [effect.Ledger].
func (l *Ledger) Cancel(ctx context.Context, key effect.Key) (before effect.Record, err error) {
	now := time.Now().UnixNano()
	err = l.write(ctx, key, func(tx *store.Tx) error {
		before, err = l.find(&tx.View, key)
		switch {
		case errors.Is(err, effect.ErrUnknown):
			before = effect.Record{Key: key}
			_, err = tx.Exec(l.q.insert, key.Project, key.ID, nil, effect.Cancelled, "", now)
		case err == nil && (before.State == effect.Running || before.State == effect.Dropped || before.State == effect.Yielded):
			_, err = tx.Exec(l.q.enter, key.Project, key.ID, effect.Cancelled, now)
		}
		return err
	})
	return before, err
}

// Lookup implements [effect.Ledger].
func (l *Ledger) Lookup(ctx context.Context, key effect.Key) (rec effect.Record, err error) {
	if err := key.Validate(); err != nil {
		return rec, err
	}
	err = l.db.Read(ctx, func(v *store.View) error {
		rec, err = l.find(v, key)
		return err
	})
	return rec, err
}

// Release implements [effect.Ledger].
func (l *Ledger) Release(ctx context.Context, keys ...effect.Key) error {
	now := time.Now().UnixNano()
	return l.db.Write(ctx, func(tx *store.Tx) error {
		for _, key := range keys {
			if _, err := tx.Exec(l.q.releaseBody, key.Project, key.ID); err != nil {
				return err
			}
			if _, err := tx.Exec(l.q.release, key.Project, key.ID, now); err != nil {
				return err
			}
		}
		return nil
	})
}

// releasePage is the number of effects that one write of ReleaseRuns deletes, and of runs that one write ends.
const releasePage = 500

// ReleaseRuns implements [effect.Ledger]. Runs that were at work at the same time have their effects side by side, so
// those of all runs are deleted in the order of their places: each page of the database is written about once.
func (l *Ledger) ReleaseRuns(ctx context.Context, project string, runs ...string) error {
	for some := range slices.Chunk(runs, releasePage) {
		if err := l.endRuns(ctx, project, some); err != nil {
			return err
		}
		ended, err := l.ofRuns(ctx, project, some)
		if err != nil {
			return err
		}
		for page := range slices.Chunk(ended, releasePage) {
			if err := l.delete(ctx, project, page); err != nil {
				return err
			}
		}
	}
	return nil
}

// endRuns cancels the open effects of runs, and lets the runs begin no other.
func (l *Ledger) endRuns(ctx context.Context, project string, runs []string) error {
	now := time.Now().UnixNano()
	return l.db.Write(ctx, func(tx *store.Tx) error {
		for _, run := range runs {
			if _, err := tx.Exec(l.q.cancelRun, project, run, now); err != nil {
				return err
			}
			if _, err := tx.Exec(l.q.endRun, project, run, now); err != nil {
				return err
			}
		}
		return nil
	})
}

// place is where an effect is.
type place struct {
	seq int64
	id  string
}

// ofRuns returns the places of all effects of runs that are not cancelled, in their order.
func (l *Ledger) ofRuns(ctx context.Context, project string, runs []string) (all []place, err error) {
	err = l.db.Read(ctx, func(v *store.View) error {
		for _, run := range runs {
			for row, err := range v.Query(l.q.ofRun, project, run) {
				if err != nil {
					return err
				}
				var p place
				if err := row.Scan(&p.seq, &p.id); err != nil {
					return err
				}
				all = append(all, p)
			}
		}
		return nil
	})
	slices.SortFunc(all, func(a, b place) int { return cmp.Compare(a.seq, b.seq) })
	return all, err
}

// delete deletes the effects that are still where they were and not open.
func (l *Ledger) delete(ctx context.Context, project string, these []place) error {
	return l.db.Write(ctx, func(tx *store.Tx) error {
		for _, p := range these {
			for _, statement := range []string{l.q.deleteBody, l.q.delete} {
				if _, err := tx.Exec(statement, p.seq, project, p.id); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// Open implements [effect.Ledger].
func (l *Ledger) Open(ctx context.Context, owner string) (open []effect.Record, err error) {
	err = l.db.Read(ctx, func(v *store.View) error {
		for row, err := range v.Query(l.q.open, owner) {
			if err != nil {
				return err
			}
			rec, err := scan(row)
			if err != nil {
				return err
			}
			open = append(open, rec)
		}
		return nil
	})
	return open, err
}

// expirePage is the number of rows that one write of Expire handles: it bounds the wait of the writer's other users.
const expirePage = 1000

// Expire implements [effect.Ledger]. It visits the rows in the order of their first claim and ends at the first that
// was claimed too late to be expired, so it reads few rows that it does not delete.
func (l *Ledger) Expire(ctx context.Context, finished, released time.Time) (total int, err error) {
	if err := l.expireEpochs(ctx, finished); err != nil {
		return 0, err
	}
	latest := finished
	if released.After(latest) {
		latest = released
	}
	for after, more := int64(0), true; more; {
		var end int64
		var rows, over int
		err := l.db.Read(ctx, func(v *store.View) error {
			return v.QueryRow(l.q.page, after, expirePage, nanos(latest), nanos(finished), nanos(released)).Scan(&end, &rows, &over)
		})
		if err != nil {
			return total, err
		}
		if more = rows == expirePage; rows == 0 {
			break
		}
		if over > 0 { // A page of remaining rows costs other users no write.
			n, err := l.expire(ctx, after, end, finished, released)
			if err != nil {
				return total, err
			}
			total += n
		}
		after = end
	}
	return total, nil
}

// expireEpochs forgets the epochs of runs that have had no newer one since.
func (l *Ledger) expireEpochs(ctx context.Context, before time.Time) error {
	for n := int64(expirePage); n == expirePage; {
		err := l.db.Write(ctx, func(tx *store.Tx) (err error) {
			n, err = affected(tx.Exec(l.q.expireEpochs, nanos(before), expirePage))
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// expire deletes the ended effects among the rows after one and up to another.
func (l *Ledger) expire(ctx context.Context, after, end int64, finished, released time.Time) (forgotten int, err error) {
	err = l.db.Write(ctx, func(tx *store.Tx) error {
		if _, err := tx.Exec(l.q.expireBodies, after, end, nanos(finished), nanos(released)); err != nil {
			return err
		}
		n, err := affected(tx.Exec(l.q.expire, after, end, nanos(finished), nanos(released)))
		forgotten = int(n)
		return err
	})
	return forgotten, err
}

func (l *Ledger) write(ctx context.Context, key effect.Key, fn func(*store.Tx) error) error {
	if err := key.Validate(); err != nil {
		return err
	}
	return l.db.Write(ctx, fn)
}

// leave moves a claim that owner holds out of Running, by the statement leave or finish.
func (l *Ledger) leave(tx *store.Tx, statement string, key effect.Key, owner string, to effect.State) error {
	n, err := affected(tx.Exec(statement, key.Project, key.ID, owner, to, time.Now().UnixNano()))
	if err != nil || n > 0 {
		return err
	}
	rec, err := l.find(&tx.View, key)
	if err != nil {
		return err
	}
	return notHeld(rec)
}

func notHeld(rec effect.Record) error {
	if rec.State == effect.Cancelled {
		return fmt.Errorf("%w: %v", effect.ErrCancelled, rec.Key)
	}
	return fmt.Errorf("%w: %v", effect.ErrNotOwner, rec.Key)
}

func (l *Ledger) find(v *store.View, key effect.Key) (effect.Record, error) {
	rec, err := scan(v.QueryRow(l.q.find, key.Project, key.ID))
	if errors.Is(err, sql.ErrNoRows) {
		return effect.Record{}, fmt.Errorf("%w: %v", effect.ErrUnknown, key)
	}
	return rec, err
}

func scan(row store.Row) (rec effect.Record, err error) {
	var hash []byte
	var claimed, changed int64
	err = row.Scan(&rec.Key.Project, &rec.Key.ID, &hash, &rec.State, &rec.Owner, &rec.Reissues, &rec.Yields, &claimed, &changed, &rec.Body)
	if err != nil {
		return effect.Record{}, err
	}
	copy(rec.Hash[:], hash)
	rec.Claimed, rec.Changed = time.Unix(0, claimed), time.Unix(0, changed)
	return rec, nil
}

// nanos is UnixNano for the times that it is defined for, and the zero time as one before all.
func nanos(t time.Time) int64 {
	if t.IsZero() {
		return math.MinInt64
	}
	return t.UnixNano()
}

func affected(res sql.Result, err error) (int64, error) {
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}
