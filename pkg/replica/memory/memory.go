// Package memory is a table of replicas for unit tests. It survives nothing.
package memory

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/evalfleet/evalfleet/pkg/replica"
)

// Table keeps rows in a map. The zero value is an empty table.
type Table struct {
	mu   sync.Mutex
	rows map[place]*row
}

type place struct{ service, name string }

type row struct {
	replica.Row

	beat time.Time
}

var _ replica.Table = (*Table)(nil)

// Join implements [replica.Table].
func (t *Table) Join(ctx context.Context, m replica.Member) (replica.Row, error) {
	if err := ctx.Err(); err != nil {
		return replica.Row{}, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.rows == nil {
		t.rows = map[place]*row{}
	}
	now, at := time.Now(), place{m.Service, m.Name}
	before := t.rows[at]
	if before == nil {
		before = &row{beat: now}
	}
	joined := replica.Row{Member: m, Epoch: before.Epoch + 1, Silence: now.Sub(before.beat)}
	t.rows[at] = &row{Row: joined, beat: now}
	return joined, nil
}

// Beat implements [replica.Table].
func (t *Table) Beat(ctx context.Context, process string) error {
	return t.with(ctx, process, func(r *row) { r.beat = time.Now() })
}

// Leave implements [replica.Table].
func (t *Table) Leave(ctx context.Context, process string) error {
	if err := t.with(ctx, process, func(r *row) { r.Process = "" }); err != nil {
		return ctx.Err()
	}
	return nil
}

// List implements [replica.Table].
func (t *Table) List(ctx context.Context) ([]replica.Row, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	var rows []replica.Row
	for _, r := range t.rows {
		listed := r.Row
		listed.Silence = time.Since(r.beat)
		rows = append(rows, listed)
	}
	slices.SortFunc(rows, func(a, b replica.Row) int {
		return cmp.Or(cmp.Compare(a.Service, b.Service), cmp.Compare(a.Name, b.Name))
	})
	return rows, nil
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
		if process != "" && r.Process == process {
			do(r)
			return nil
		}
	}
	return replica.ErrUnknown
}
