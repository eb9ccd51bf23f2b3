package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"

	"google.golang.org/protobuf/proto"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/pkg/sqlite"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
)

const defaultEvents = 1000

// page reads events of one journal in order. SQLite inspects a plain limit parameter when it plans, and plans again for
// every other value; it does not inspect a sum.
const page = `SELECT seq, epoch, same, hash, body FROM journal_event WHERE journal = ? AND seq > ? AND seq <= ? ORDER BY seq LIMIT 0 + ?`

// stored is a row of journal_event.
type stored struct {
	seq, epoch, same int64
	hash, body       []byte
}

// Read implements [journal.Journals].
func (s *Store) Read(ctx context.Context, ref journal.Ref, r journal.Range) ([]*agentv1.Event, error) {
	if r.Limit <= 0 {
		r.Limit = defaultEvents
	}
	if r.Bytes <= 0 {
		r.Bytes = journal.DefaultBytes
	}
	var events []*agentv1.Event
	err := s.db.Read(ctx, func(v *sqlite.View) (err error) {
		events, err = read(v, ref, r)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("journal: read: %w", err)
	}
	return events, nil
}

func read(v *sqlite.View, ref journal.Ref, r journal.Range) ([]*agentv1.Event, error) {
	var name string
	err := v.QueryRow(`SELECT name FROM journal WHERE id = ? AND id NOT IN (SELECT id FROM journal_deleted)`, ref).Scan(&name)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, journal.ErrNotFound
	}
	if err != nil {
		return nil, err
	}
	var (
		events []*agentv1.Event
		size   int
	)
	at, until, err := holder(v, ref, r.After+1)
	if err != nil {
		return nil, err
	}
	last := r.After
	for row, err := range v.Query(page, at, r.After, until, r.Limit) {
		if err != nil {
			return nil, err
		}
		var e stored
		if err := row.Scan(&e.seq, &e.epoch, &e.same, &e.hash, &e.body); err != nil {
			return nil, err
		}
		event, err := e.after(last, v, ref, r.Bare, events)
		if errors.Is(err, journal.ErrUnreadable) && len(events) > 0 {
			break // The next page begins with it.
		}
		if err != nil {
			return nil, err
		}
		last = e.seq
		if size += proto.Size(event); size > r.Bytes && len(events) > 0 {
			break
		}
		event.Journal = name
		events = append(events, event)
	}
	return events, nil
}

// holder returns the journal that holds an event of a journal, which is the journal itself or one of its bases, and the
// last event of the holder that belongs to the journal.
func holder(v *sqlite.View, ref journal.Ref, seq int64) (at journal.Ref, until int64, err error) {
	for at, until = ref, math.MaxInt64; ; {
		var base journal.Base
		err := v.QueryRow(`SELECT base, seq FROM journal_base WHERE journal = ?`, at).Scan(&base.Ref, &base.Seq)
		switch {
		case errors.Is(err, sql.ErrNoRows):
			return at, until, nil
		case err != nil:
			return 0, 0, err
		case seq > base.Seq:
			return at, until, nil
		}
		at, until = base.Ref, min(until, base.Seq)
	}
}

// after is event for the row that follows another.
func (e stored) after(last int64, v *sqlite.View, ref journal.Ref, bare bool, before []*agentv1.Event) (*agentv1.Event, error) {
	if e.seq != last+1 {
		return nil, fmt.Errorf("%w: event %d does not follow %d", journal.ErrUnreadable, e.seq, last)
	}
	return e.event(v, ref, bare, before)
}

// event decodes a row to its event. Before holds the earlier events of the page.
func (e stored) event(v *sqlite.View, ref journal.Ref, bare bool, before []*agentv1.Event) (*agentv1.Event, error) {
	event, err := journal.Unpack(e.body)
	if err != nil {
		return nil, err
	}
	event.Seq, event.Epoch = e.seq, e.epoch
	if bare {
		return event, nil
	}
	if e.hash != nil {
		var content []byte
		if err := v.QueryRow(`SELECT body FROM journal_blob WHERE hash = ?`, e.hash).Scan(&content); err != nil {
			return nil, fmt.Errorf("content of event %d: %w", e.seq, lost(err))
		}
		if err := journal.PutContent(event, content); err != nil {
			return nil, err
		}
	}
	if e.same != 0 {
		source, err := e.source(v, ref, before)
		if err != nil {
			return nil, fmt.Errorf("source of event %d: %w", e.seq, err)
		}
		journal.PutSame(event, source)
	}
	return event, nil
}

// source returns the event that holds the same message, which is an earlier one.
func (e stored) source(v *sqlite.View, ref journal.Ref, before []*agentv1.Event) (*agentv1.Event, error) {
	if e.same >= e.seq {
		return nil, fmt.Errorf("%w: %d is no earlier event", journal.ErrUnreadable, e.same)
	}
	if len(before) > 0 && e.same >= before[0].GetSeq() {
		return before[e.same-before[0].GetSeq()], nil
	}
	at, _, err := holder(v, ref, e.same)
	if err != nil {
		return nil, err
	}
	src := stored{seq: e.same}
	if err := v.QueryRow(`SELECT epoch, hash, body FROM journal_event WHERE journal = ? AND seq = ?`, at, e.same).Scan(&src.epoch, &src.hash, &src.body); err != nil {
		return nil, lost(err)
	}
	return src.event(v, ref, false, nil)
}

// lost gives an error a kind if the row is missing.
func lost(err error) error {
	if errors.Is(err, sql.ErrNoRows) {
		return fmt.Errorf("%w: it is missing", journal.ErrUnreadable)
	}
	return err
}
