package sqlite

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strings"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/pkg/sqlite"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
)

const columns = `SELECT j.id, j.name, j.head, j.epoch, j.owner, j.open, v.kind, v.state, v.parent, v.waiting, v.wake, v.reason, v.since, v.changed, v.view, coalesce(j.request, '')
	FROM journal j JOIN view_journal v ON v.id = j.id`

func scan(row sqlite.Row) (l journal.Listed, err error) {
	var (
		open        bool
		wake, since int64
	)
	err = row.Scan(&l.Ref, &l.Name, &l.Seq, &l.Epoch, &l.Owner, &open, &l.Kind, &l.State, &l.Parent, &l.Waiting, &wake, &l.WaitReason, &since, &l.Change, &l.View, &l.Request)
	l.Done, l.Wake, l.WaitSince = !open, fromMillis(wake), fromMillis(since)
	return l, err
}

func one(tx *sqlite.Tx, ref journal.Ref) (journal.Listed, error) {
	return scan(tx.QueryRow(columns+` WHERE j.id = ?`, ref))
}

// List implements [journal.Index].
func (s *Store) List(ctx context.Context, q journal.Query) ([]journal.Listed, error) {
	text, args := selection(q)
	var listed []journal.Listed
	err := s.db.Read(ctx, func(v *sqlite.View) error {
		listed = nil
		size := 0
		for row, err := range v.Query(text, args...) {
			if err != nil {
				return err
			}
			l, err := scan(row)
			if err != nil {
				return err
			}
			listed = append(listed, l)
			if size += len(l.View); q.Bytes > 0 && size > q.Bytes && len(listed) > 1 {
				break
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("journal: list: %w", err)
	}
	return listed, nil
}

// Changed implements [journal.Index]. The only writer commits serially, so numbers become visible in order.
func (s *Store) Changed(ctx context.Context, q journal.ChangeQuery) (page []journal.Listed, newest journal.Change, err error) {
	if q.Limit <= 0 {
		q.Limit = 100
	}
	err = s.db.Read(ctx, func(v *sqlite.View) error {
		page = nil
		if err := v.QueryRow(`SELECT changes FROM journal_store`).Scan(&newest); err != nil {
			return err
		}
		size := 0
		for row, err := range v.Query(columns+` WHERE v.project = ? AND v.changed > ? AND (NOT ? OR v.parent = '') ORDER BY v.changed LIMIT 0 + ?`, q.Project, q.After, q.Roots, q.Limit) {
			if err != nil {
				return err
			}
			l, err := scan(row)
			if err != nil {
				return err
			}
			if size += len(l.View); q.Bytes > 0 && size > q.Bytes && len(page) > 0 {
				break
			}
			page = append(page, l)
		}
		return nil
	})
	if err != nil {
		return nil, 0, fmt.Errorf("journal: changes of %s: %w", q.Project, err)
	}
	return page, newest, nil
}

// selection writes the query. Values are arguments, so that the number of texts stays small.
func selection(q journal.Query) (string, []any) {
	var (
		where []string
		args  []any
	)
	narrow := func(condition string, values ...any) {
		where = append(where, condition)
		args = append(args, values...)
	}
	if q.Project != "" {
		narrow(`v.project = ?`, q.Project)
	}
	if q.Kind != 0 {
		narrow(`v.kind = ?`, q.Kind)
	}
	if len(q.States) > 0 {
		narrow(`v.state IN (SELECT value FROM json_each(?))`, strings.ReplaceAll(fmt.Sprint(q.States), " ", ","))
	}
	switch {
	case q.Parent != "" && q.Open:
		narrow(`+v.parent = ?`, q.Parent) // The plus keeps SQLite from the index of parents: a parent may have many more journals than are open.
	case q.Parent != "":
		narrow(`v.parent = ?`, q.Parent)
	}
	if len(q.Labels) > 0 {
		narrow(`NOT EXISTS (SELECT 1 FROM json_each(?) l WHERE NOT EXISTS (SELECT 1 FROM view_label x WHERE x.key = l.key AND x.value = l.value AND x.id = v.id))`,
			labelsJSON(q.Labels))
	}
	if q.WaitReason != "" {
		narrow(`v.reason = ?`, q.WaitReason)
	}
	if q.Owner != "" {
		narrow(`j.open = 1 AND j.owner = ?`, q.Owner)
	}
	if q.Refs != nil {
		refs, _ := json.Marshal(q.Refs) // numbers always have a JSON form
		narrow(`v.id IN (SELECT value FROM json_each(?))`, string(refs))
	}
	if q.Waiting != nil {
		narrow(`v.waiting = ?`, *q.Waiting)
	}
	if q.Before != 0 {
		narrow(`v.id < ?`, q.Before)
	}
	order := ` ORDER BY v.id DESC`
	if q.Roots {
		narrow(`v.parent = '' AND v.id > ?`, q.After)
		order = ` ORDER BY v.id`
	}
	if q.Open {
		narrow(`j.open = 1`)
		order = ` ORDER BY j.id`
	}
	if q.Limit <= 0 {
		q.Limit = 100
	}
	text := columns
	if len(where) > 0 {
		text += ` WHERE ` + strings.Join(where, ` AND `)
	}
	return text + order + ` LIMIT 0 + ?`, append(args, q.Limit)
}

// Waits implements [journal.Index].
func (s *Store) Waits(ctx context.Context, parent string) ([]journal.Wait, error) {
	var waits []journal.Wait
	err := s.db.Read(ctx, func(v *sqlite.View) error {
		waits = nil
		// With min() alone, SQLite takes the other columns from the row that has it:
		// https://sqlite.org/lang_select.html#bareagg
		for row, err := range v.Query(`SELECT reason, count(*), min(since), view FROM view_journal WHERE parent = ? AND reason <> '' GROUP BY reason ORDER BY reason`, parent) {
			if err != nil {
				return err
			}
			var (
				w     journal.Wait
				since int64
			)
			if err := row.Scan(&w.Reason, &w.Count, &since, &w.View); err != nil {
				return err
			}
			waits = append(waits, w)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("journal: waits of %s: %w", parent, err)
	}
	return waits, nil
}

// rebuildPage is how many journals are folded between two writes.
const rebuildPage = 64

// Rebuild implements [journal.Index]. There must be no concurrent writer.
func (s *Store) Rebuild(ctx context.Context, fold func(journal.Head, iter.Seq2[*agentv1.Event, error]) (journal.Row, error)) error {
	if err := s.db.Write(ctx, remake); err != nil {
		return err
	}
	for after := journal.Ref(0); ; {
		heads, err := s.heads(ctx, after)
		if err != nil {
			return err
		}
		if len(heads) == 0 {
			return s.db.Write(ctx, func(tx *sqlite.Tx) error { _, err := tx.Exec(projected); return err })
		}
		rows, unreadable := make([]journal.Row, len(heads)), make([]bool, len(heads))
		for i, head := range heads {
			rows[i], err = fold(head, s.events(ctx, head))
			if unreadable[i] = errors.Is(err, journal.ErrUnreadable); err != nil && !unreadable[i] {
				return fmt.Errorf("journal: rebuild %s: %w", head.Name, err)
			}
		}
		err = s.db.Write(ctx, func(tx *sqlite.Tx) error {
			for i, head := range heads {
				if err := insertLabels(tx, head.Ref, rows[i].Labels); err != nil {
					return err
				}
				if _, err := tx.Exec(`UPDATE journal SET open = ? WHERE id = ? AND NOT ?`, !rows[i].Done, head.Ref, unreadable[i]); err != nil {
					return err
				}
				if _, err := setRow(tx, head.Ref, head.Name, &rows[i]); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("journal: rebuild: %w", err)
		}
		after = heads[len(heads)-1].Ref
	}
}

func (s *Store) heads(ctx context.Context, after journal.Ref) (heads []journal.Head, err error) {
	err = s.db.Read(ctx, func(v *sqlite.View) error {
		for row, err := range v.Query(`SELECT id, name, head, epoch, owner FROM journal WHERE id > ? AND id NOT IN (SELECT id FROM journal_deleted) ORDER BY id LIMIT ?`, after, rebuildPage) {
			var h journal.Head
			if err == nil {
				err = row.Scan(&h.Ref, &h.Name, &h.Seq, &h.Epoch, &h.Owner)
			}
			if err != nil {
				return err
			}
			heads = append(heads, h)
		}
		return nil
	})
	return heads, err
}

// events reads a journal page by page.
func (s *Store) events(ctx context.Context, head journal.Head) iter.Seq2[*agentv1.Event, error] {
	return journal.All(ctx, s, head.Ref, 0)
}
