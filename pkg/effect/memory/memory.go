// Package memory is an effect ledger for unit tests. It survives nothing, so it is never the ledger of a service.
package memory

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/evalfleet/evalfleet/pkg/effect"
)

// Ledger keeps claims and results in a map. The zero value is an empty ledger.
type Ledger struct {
	mu   sync.Mutex
	rows map[effect.Key]*row
	runs map[effect.Key]epoch // by the run of a project
	last int
}

type row struct {
	effect.Record
	order int // of the first claim
}

// epoch is the newest of a run, and since when.
type epoch struct {
	number   int64
	since    time.Time
	released bool
}

var _ effect.Ledger = (*Ledger)(nil)

// Claim implements [effect.Ledger].
func (l *Ledger) Claim(ctx context.Context, key effect.Key, hash effect.Hash, owner string, epoch int64) (effect.Record, bool, error) {
	if err := check(ctx, key); err != nil {
		return effect.Record{}, false, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.fence(key, epoch); err != nil {
		return effect.Record{}, false, err
	}
	r, ok := l.rows[key]
	switch {
	case !ok:
		r = l.add(effect.Record{Key: key, Hash: hash})
	case r.State == effect.Cancelled:
		return r.Record, false, nil
	case r.Hash != hash:
		return effect.Record{}, false, fmt.Errorf("%w: %v", effect.ErrContentMismatch, key)
	case r.State != effect.Dropped && r.State != effect.Yielded:
		return r.Record, false, nil
	}
	r.Owner = owner
	r.enter(effect.Running)
	return r.Record, true, nil
}

// Fence implements [effect.Ledger].
func (l *Ledger) Fence(ctx context.Context, key effect.Key, epoch int64) error {
	if err := check(ctx, key); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.fence(key, epoch)
}

// fence compares an epoch with the newest of its run. l.mu is held.
func (l *Ledger) fence(key effect.Key, number int64) error {
	run := effect.Key{Project: key.Project, ID: key.Run()}
	switch known := l.runs[run].number; {
	case number != 0 && number >= known && l.runs[run].released:
		return fmt.Errorf("%w: %v", effect.ErrReleased, key)
	case number == 0 || number == known:
		return nil
	case number < known:
		return &effect.SupersededError{Key: key, Epoch: known}
	}
	if l.runs == nil {
		l.runs = make(map[effect.Key]epoch)
	}
	l.runs[run] = epoch{number: number, since: time.Now()}
	return nil
}

// Finish implements [effect.Ledger].
func (l *Ledger) Finish(ctx context.Context, key effect.Key, owner string, outcome effect.Outcome) error {
	return l.held(ctx, key, owner, func(r *row) {
		r.Body = bytes.Clone(outcome.Body)
		r.enter(outcome.State)
	})
}

// Drop implements [effect.Ledger].
func (l *Ledger) Drop(ctx context.Context, key effect.Key, owner string) error {
	return l.held(ctx, key, owner, func(r *row) { r.enter(effect.Dropped) })
}

// Yield implements [effect.Ledger].
func (l *Ledger) Yield(ctx context.Context, owner string, keys ...effect.Key) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, key := range keys {
		if r, ok := l.rows[key]; ok && r.State == effect.Running && r.Owner == owner {
			r.Yields++
			r.enter(effect.Yielded)
		}
	}
	return nil
}

// Reclaim implements [effect.Ledger].
func (l *Ledger) Reclaim(ctx context.Context, key effect.Key, from, to string) (rec effect.Record, err error) {
	err = l.held(ctx, key, from, func(r *row) {
		r.Owner = to
		r.Reissues++
		r.enter(effect.Running)
		rec = r.Record
	})
	return rec, err
}

// Cancel implements [effect.Ledger].
func (l *Ledger) Cancel(ctx context.Context, key effect.Key) (effect.Record, error) {
	if err := check(ctx, key); err != nil {
		return effect.Record{}, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	before := effect.Record{Key: key}
	r, ok := l.rows[key]
	if ok {
		before = r.Record
	} else {
		r = l.add(before)
	}
	if !ok || r.State == effect.Running || r.State == effect.Dropped || r.State == effect.Yielded {
		r.enter(effect.Cancelled)
	}
	return before, nil
}

// Lookup implements [effect.Ledger].
func (l *Ledger) Lookup(ctx context.Context, key effect.Key) (effect.Record, error) {
	if err := check(ctx, key); err != nil {
		return effect.Record{}, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if r, ok := l.rows[key]; ok {
		return r.Record, nil
	}
	return effect.Record{}, fmt.Errorf("%w: %v", effect.ErrUnknown, key)
}

// Release implements [effect.Ledger].
func (l *Ledger) Release(ctx context.Context, keys ...effect.Key) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, key := range keys {
		if r, ok := l.rows[key]; ok && r.State.Finished() {
			r.Body = nil
			r.enter(effect.Released)
		}
	}
	return nil
}

// ReleaseRuns implements [effect.Ledger].
func (l *Ledger) ReleaseRuns(ctx context.Context, project string, runs ...string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, r := range l.rows {
		run, _, within := strings.Cut(key.ID, "/")
		switch {
		case key.Project != project || !within || !slices.Contains(runs, run):
		case r.State == effect.Running:
			r.enter(effect.Cancelled)
		case r.State != effect.Cancelled:
			delete(l.rows, key)
		}
	}
	for _, run := range runs {
		if known, ok := l.runs[effect.Key{Project: project, ID: run}]; ok {
			l.runs[effect.Key{Project: project, ID: run}] = epoch{known.number, time.Now(), true}
		}
	}
	return nil
}

// Open implements [effect.Ledger].
func (l *Ledger) Open(ctx context.Context, owner string) ([]effect.Record, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	var open []*row
	for _, r := range l.rows {
		if r.State == effect.Running && (owner == "" || r.Owner == owner) {
			open = append(open, r)
		}
	}
	slices.SortFunc(open, func(a, b *row) int { return cmp.Compare(a.order, b.order) })
	var recs []effect.Record
	for _, r := range open {
		recs = append(recs, r.Record)
	}
	return recs, nil
}

// Expire implements [effect.Ledger].
func (l *Ledger) Expire(ctx context.Context, finished, released time.Time) (int, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for run, known := range l.runs {
		if known.since.Before(finished) {
			delete(l.runs, run)
		}
	}
	n := 0
	for key, r := range l.rows {
		before := finished
		if r.State == effect.Released {
			before = released
		}
		if r.State != effect.Running && r.Changed.Before(before) {
			delete(l.rows, key)
			n++
		}
	}
	return n, nil
}

// held changes the row of a running claim that owner holds.
func (l *Ledger) held(ctx context.Context, key effect.Key, owner string, change func(*row)) error {
	if err := check(ctx, key); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	r, ok := l.rows[key]
	switch {
	case !ok:
		return fmt.Errorf("%w: %v", effect.ErrUnknown, key)
	case r.State == effect.Cancelled:
		return fmt.Errorf("%w: %v", effect.ErrCancelled, key)
	case r.State != effect.Running || r.Owner != owner:
		return fmt.Errorf("%w: %v", effect.ErrNotOwner, key)
	}
	change(r)
	return nil
}

func (l *Ledger) add(rec effect.Record) *row {
	if l.rows == nil {
		l.rows = make(map[effect.Key]*row)
	}
	l.last++
	rec.Claimed = time.Now()
	r := &row{Record: rec, order: l.last}
	l.rows[rec.Key] = r
	return r
}

func (r *row) enter(s effect.State) {
	r.State = s
	r.Changed = time.Now()
}

func check(ctx context.Context, key effect.Key) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return key.Validate()
}
