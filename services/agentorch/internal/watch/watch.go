// Package watch follows a journal for one watcher: first the existing events, then new events as they are appended. A
// watcher reads from the store at its own pace, and never delays appends: a wake-up only says that there is more.
package watch

import (
	"context"
	"time"

	"google.golang.org/protobuf/proto"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/pkg/lastvalue"
	"github.com/evalfleet/evalfleet/pkg/resource"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/redact"
)

// pageEvents bounds how many events are read together, so that a slow watcher takes little memory.
const pageEvents = 200

// Watch defines what to follow, and where to send it. Its functions are called one at a time.
type Watch struct {
	// Journal is the name of the journal.
	Journal string
	// Cursor is the position after which to start, as Emit received it; empty for the beginning.
	Cursor string
	// FromHead, with an empty cursor, leaves out the events that there are. Emit is given their last place first.
	FromHead bool
	// Of is the request that cursors belong to, without the fields that may differ between two watches of the same
	// journal.
	Of proto.Message
	// Content leaves events their content.
	Content bool
	// Emit sends an event after the cursor, or a heartbeat if the event is nil, with the cursor that continues after
	// it.
	Emit func(event *agentv1.Event, cursor string) error
	// Ended reports whether this event is the last, as far as is known. It is called for each event after the cursor,
	// and for the event at the cursor.
	Ended func(*agentv1.Event) bool
	// Idle, unless nil, is called when all existing events have been sent, and a last time when the journal has ended.
	// It sends state that is in no event.
	Idle func(cursor string, ended bool) error
	// More, unless nil, wakes the watch as an append does.
	More <-chan struct{}
	// Look, unless zero, is the interval at which the watch wakes without a notification.
	Look time.Duration
}

// Follow watches until the journal has ended and all is sent, until Emit or Idle fails, or until ctx ends. It fails
// with INVALID_CURSOR and RESOURCE_NOT_FOUND.
func Follow(ctx context.Context, store journal.Store, w Watch) error {
	after, err := resource.ReadCursor(w.Cursor, w.Of)
	if err != nil {
		return err
	}
	wake := store.Subscribe(w.Journal)
	defer wake.Close()
	head, err := store.Open(ctx, w.Journal)
	if err != nil {
		return journal.Gone(err, w.Journal)
	}
	beats := time.NewTicker(lastvalue.Heartbeat)
	defer beats.Stop()
	var looks <-chan time.Time
	if w.Look > 0 {
		ticker := time.NewTicker(w.Look)
		defer ticker.Stop()
		looks = ticker.C
	}
	fromHead := w.FromHead && w.Cursor == ""
	if fromHead {
		after = head.Seq
	}
	f := follower{Watch: w, store: store, head: head, cursors: resource.Cursors(w.Of), sent: after, read: max(0, after-1)}
	if fromHead {
		if err := w.Emit(nil, f.cursor()); err != nil {
			return err
		}
	}
	for {
		news, err := f.catchUp(ctx)
		if err != nil {
			return err
		}
		if news {
			beats.Reset(lastvalue.Heartbeat)
		}
		if w.Idle != nil {
			if err := w.Idle(f.cursor(), f.ended); err != nil {
				return err
			}
		}
		if f.ended {
			return nil
		}
		select {
		case <-wake.C:
		case <-w.More:
		case <-looks:
		case <-beats.C:
			if err := w.Emit(nil, f.cursor()); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// follower is a watch on its way.
type follower struct {
	Watch

	store   journal.Store
	head    journal.Head
	cursors func(after int64) string
	// read and sent are the numbers of the last events that were.
	read, sent int64
	ended      bool
}

// catchUp sends all events that there are and reports whether there was any.
func (f *follower) catchUp(ctx context.Context) (news bool, err error) {
	for {
		page, err := f.store.Read(ctx, f.head.Ref, journal.Range{After: f.read, Limit: pageEvents, Bare: !f.Content})
		if err != nil {
			return news, journal.Gone(err, f.Journal)
		}
		if len(page) == 0 {
			return news, nil
		}
		for _, event := range page {
			f.read = event.GetSeq()
			f.ended = f.Ended(event)
			if f.read <= f.sent {
				continue
			}
			f.sent, news = f.read, true
			if err := f.Emit(f.shown(event), f.cursor()); err != nil {
				return news, err
			}
		}
	}
}

// shown is an event as the watcher may see it.
func (f *follower) shown(event *agentv1.Event) *agentv1.Event {
	if f.Content {
		return event
	}
	return redact.Content(event)
}

// cursor returns the cursor that continues after the sent events.
func (f *follower) cursor() string { return f.cursors(f.sent) }
