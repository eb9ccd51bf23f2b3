package runs

import (
	"context"
	"errors"
	"iter"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/engine/waits"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/mailbox"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/progress"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/redact"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/run"
)

// View returns a run, folded from its journal, with its live state from the engine. Full includes its content.
func (r *Runs) View(ctx context.Context, name string, full bool) (*agentv1.Run, error) {
	f := r.fold(name)
	if _, err := f.read(ctx); err != nil {
		return nil, err
	}
	return r.shown(f, full), nil
}

// Wait returns a run when it has ended, or when that time is over, as View does.
func (r *Runs) Wait(ctx context.Context, name string, within time.Duration, full bool) (*agentv1.Run, error) {
	f := r.fold(name)
	err := mailbox.AwaitWithin(ctx, r.deps.Store, name, within, func() (bool, error) { return f.read(ctx) })
	if err != nil {
		return nil, err
	}
	return r.shown(f, full), nil
}

func (r *Runs) shown(f *fold, full bool) *agentv1.Run {
	view := r.live(f.state.View(full), f.state.Finished)
	if !f.state.Finished && !f.state.Started.IsZero() {
		view.Used.Time = durationpb.New(max(0, f.state.Elapsed(time.Now())))
	}
	return view
}

// Listed returns a run as its row shows it, or from its journal if the row cannot be read. If the journal cannot be
// read either, it returns only the name and the state.
func (r *Runs) Listed(ctx context.Context, row journal.Listed) (*agentv1.Run, error) {
	one := &agentv1.Run{}
	if err := proto.Unmarshal(row.View, one); err != nil {
		r.deps.Logger.Error("the row of a run cannot be read; its journal is read instead", "run", row.Name, "error", err)
		f := r.fold(row.Name)
		_, err := f.read(ctx)
		switch {
		case err == nil:
			one = f.state.View(false)
		case errors.Is(err, journal.ErrUnreadable) || rpcerr.Code(err) == codes.NotFound: // deleted in the meantime
			one = &agentv1.Run{Name: row.Name, State: agentv1.RunState(row.State)}
		default:
			return nil, err
		}
	}
	one.Head, one.Epoch, one.Owner = row.Seq, row.Epoch, row.Owner
	return r.live(one, row.Done), nil
}

// Events returns a page of a run's events after one, and the number of its last event.
func (r *Runs) Events(ctx context.Context, name string, after int64, limit int, withContent bool) (page []*agentv1.Event, last int64, err error) {
	head, err := r.deps.Store.Open(ctx, name)
	if err != nil {
		return nil, 0, journal.Gone(err, name)
	}
	page, err = r.deps.Store.Read(ctx, head.Ref, journal.Range{After: after, Limit: limit, Bare: !withContent})
	if err != nil {
		return nil, 0, journal.Gone(err, name)
	}
	for i, e := range page {
		if !withContent {
			page[i] = redact.Content(e)
		}
	}
	return page, head.Seq, nil
}

// live adds the live state of an active run: what it waits for, and the progress of its open effects.
func (r *Runs) live(one *agentv1.Run, finished bool) *agentv1.Run {
	if finished {
		return one
	}
	for _, latest := range progress.Latest(r.deps.Notes, progress.OfRun(one.GetName()), 1) {
		one.Note = latest.GetNote()
		one.Retries += one.GetNote().GetFailedAttempts()
	}
	wait := r.deps.Engine.Waiting(one.GetName())
	if one.GetOwner() == "" {
		wait = waits.ForReplica(one.GetCreateTime().AsTime())
	}
	if wait != nil {
		one.State, one.Wait = agentv1.RunState_RUN_STATE_WAITING, wait
	}
	return one
}

// fold is the state of a run as far as its journal was read.
type fold struct {
	store journal.Store
	head  journal.Head
	state *run.State

	command string         // the id of the wanted command; empty if there is none
	taken   *agentv1.Event // the event that took it; nil before
}

// fold returns a new fold that has read nothing yet.
func (r *Runs) fold(name string) *fold {
	return &fold{store: r.deps.Store, head: journal.Head{Name: name}}
}

// read folds the events since the last call, and reports whether the run has ended.
func (f *fold) read(ctx context.Context) (ended bool, err error) {
	if f.state == nil {
		head, err := f.store.Open(ctx, f.head.Name)
		if err != nil {
			return false, journal.Gone(err, f.head.Name)
		}
		state, err := run.Fold(head.Name, nil, f.looked(journal.All(ctx, f.store, head.Ref, 0)))
		if err != nil {
			return false, cannotFold(head.Name, err)
		}
		state.Owner = head.Owner
		f.head, f.state = head, state
		return state.Finished, nil
	}
	for event, err := range f.looked(journal.All(ctx, f.store, f.head.Ref, f.state.Seq)) {
		if err == nil {
			err = f.state.Apply(event)
		}
		if err != nil {
			return false, cannotFold(f.head.Name, err)
		}
	}
	return f.state.Finished, nil
}

// looked passes events on, and looks for the one that recorded the command.
func (f *fold) looked(events iter.Seq2[*agentv1.Event, error]) iter.Seq2[*agentv1.Event, error] {
	return func(yield func(*agentv1.Event, error) bool) {
		for e, err := range events {
			if id := e.GetCommandReceived().GetCommandId(); id != "" && id == f.command {
				f.taken = e
			}
			if !yield(e, err) {
				return
			}
		}
	}
}

// cannotFold is the error for a journal that cannot be read: an internal one, unless the cause has a kind, such as that
// of an unreachable store.
func cannotFold(name string, err error) error {
	if errors.Is(err, journal.ErrNotFound) {
		return journal.Gone(err, name)
	}
	if _, ok := rpcerr.As(err); ok {
		return rpcerr.Wrap(err, "cannot read the journal of %s", name)
	}
	return rpcerr.Internal("cannot fold the journal of %s: %w", name, err)
}
