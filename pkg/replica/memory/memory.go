// Package memory is a table of replicas for unit tests. It survives nothing.
package memory

import (
	"context"
	"sync"
	"time"

	"github.com/evalfleet/evalfleet/pkg/replica"
)

// Table keeps rows in a map. The zero value is an empty table.
type Table struct {
	mu   sync.Mutex
	rows map[string]*row // by replica
}

type row struct {
	process string
	epoch   int64
	beat    time.Time
}

var _ replica.Table = (*Table)(nil)

// Join implements [replica.Table].
func (t *Table) Join(ctx context.Context, name, process string) (int64, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.rows == nil {
		t.rows = map[string]*row{}
	}
	if t.rows[name] == nil {
		t.rows[name] = &row{}
	}
	r := t.rows[name]
	r.process, r.beat = process, time.Now()
	r.epoch++
	return r.epoch, nil
}

// Beat implements [replica.Table].
func (t *Table) Beat(ctx context.Context, process string) error {
	return t.with(ctx, process, func(r *row) { r.beat = time.Now() })
}

// Leave implements [replica.Table].
func (t *Table) Leave(ctx context.Context, process string) error {
	if err := t.with(ctx, process, func(r *row) { r.process = "" }); err != nil {
		return ctx.Err()
	}
	return nil
}

// Silence implements [replica.Table].
func (t *Table) Silence(ctx context.Context, process string) (silence time.Duration, err error) {
	err = t.with(ctx, process, func(r *row) { silence = time.Since(r.beat) })
	return silence, err
}

// Age makes the last beat of a process older.
func (t *Table) Age(process string, by time.Duration) {
	_ = t.with(context.Background(), process, func(r *row) { r.beat = r.beat.Add(-by) })
}

// with gives the row of a process.
func (t *Table) with(ctx context.Context, process string, do func(*row)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, r := range t.rows {
		if process != "" && r.process == process {
			do(r)
			return nil
		}
	}
	return replica.ErrUnknown
}
