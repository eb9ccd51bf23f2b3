package watch

import (
	"context"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/evalfleet/evalfleet/pkg/lastvalue"
	"github.com/evalfleet/evalfleet/pkg/resource"
	"github.com/evalfleet/evalfleet/pkg/retry"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
)

const (
	// pageChanges bounds how many changes are read together.
	pageChanges = 100
	// projectRest is a watch's pause between two looks, so that frequent changes are sent only from time to time.
	projectRest = 250 * time.Millisecond
)

// Project defines which changes of a project to follow, and where to send them.
type Project struct {
	// ID is the project's, without `projects/`.
	ID string
	// Roots leaves out the runs of evaluations' samples.
	Roots bool
	// Cursor is the position after which to start, as Emit received it; empty for the beginning.
	Cursor string
	// FromHead, with an empty cursor, skips earlier changes. Emit is called with the present position first.
	FromHead bool
	// Of is the request that cursors belong to, without the fields that may differ between two watches of the same
	// changes.
	Of proto.Message
	// Emit sends journals in the order of their last change; no rows are a heartbeat, at the last position. Cursor
	// returns the cursor that continues after a change.
	Emit func(rows []journal.Listed, last journal.Change, cursor func(journal.Change) string) error
}

// FollowProject watches until Emit fails or ctx ends. It fails with INVALID_CURSOR.
func FollowProject(ctx context.Context, store journal.Store, w Project) error {
	number, err := resource.ReadCursor(w.Cursor, w.Of)
	if err != nil {
		return err
	}
	wake := store.Subscribe(resource.Project(w.ID))
	defer wake.Close()
	beats := time.NewTicker(lastvalue.Heartbeat)
	defer beats.Stop()
	cursors := resource.Cursors(w.Of)
	cursor := func(c journal.Change) string { return cursors(int64(c)) }
	after, begins := journal.Change(number), true
	for {
		rows, newest, err := store.Changed(ctx, journal.ChangeQuery{Project: w.ID, After: after, Roots: w.Roots, Limit: pageChanges, Bytes: journal.PageBytes})
		switch {
		case err != nil:
			return err
		case begins && after > newest:
			return rpcerr.InvalidCursor("cursor", "the cursor is of a place that is not there; begin again without it")
		case begins && w.FromHead && w.Cursor == "":
			begins, after = false, newest
			if err := w.Emit(nil, after, cursor); err != nil {
				return err
			}
			continue
		}
		begins = false
		if len(rows) > 0 {
			after = rows[len(rows)-1].Change
			beats.Reset(lastvalue.Heartbeat)
			if err := w.Emit(rows, after, cursor); err != nil {
				return err
			}
			if len(rows) < pageChanges {
				if err := retry.Sleep(ctx, projectRest); err != nil {
					return err
				}
			}
			continue
		}
		after = newest
		select {
		case <-wake.C:
		case <-beats.C:
			if err := w.Emit(nil, after, cursor); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
