package eval

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/evalfleet/evalfleet/pkg/auth"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/pkg/resource"
	"github.com/evalfleet/evalfleet/pkg/retry"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/mailbox"
)

// Cancel stops an evaluation. It returns when all its active runs have ended or, if that takes longer than
// Config.CancelPatience, with the evaluation still being cancelled. No run begins after Cancel has returned. It
// therefore waits until the driver of the evaluation, here or on another replica, has journaled the cancel. It does not
// wait for an evaluation of this replica without a driver: the next driver reads the inbox before it begins a run. An
// evaluation that has ended is returned unchanged. An evaluation with a damaged journal is ended here. It fails with
// JOURNAL_FENCED if the cancel is over and the evaluation was resumed since. While the store is away, Cancel retries
// until ctx ends.
func (e *Engine) Cancel(ctx context.Context, name, requestID, reason string) (*State, error) {
	var (
		s            *State
		driven, over bool
	)
	id, began := cmp.Or(requestID, resource.NewID()), time.Now()
	err := e.send(ctx, name, id, command{Type: commandCancel, Reason: reason}, mailbox.Mail{
		Every: e.cfg.CancelPatience, // A driver may end without an append.
		Read: func(ctx context.Context) (ended bool, err error) {
			// Before the state: a driver that has ended since may have left it changed.
			if driven, err = e.isDriven(ctx, name); err != nil {
				return false, err
			}
			s, err = e.State(ctx, name)
			return err == nil && s.Ended(), err
		},
		Enough: func(taken int64) bool {
			over = taken > 0 && taken <= s.Eval.GetHead() && s.Cancel == nil
			return over || time.Since(began) >= e.cfg.CancelPatience && (s.Cancel != nil || s.TooNew || !driven)
		},
	})
	switch {
	case err != nil:
		return nil, err
	case s.Damaged:
		return e.abandon(ctx, s, id, reason)
	case s.Ended():
		return s, nil
	case over:
		return nil, rpcerr.JournalFenced(0, "%s had ended, and was resumed since; cancel it again, with another request id", name)
	}
	return s.cancelling(reason), nil
}

// waitPause is the least time between two looks of Wait at an evaluation.
const waitPause = 250 * time.Millisecond

// Wait returns an evaluation when it has ended, or when that time is over.
func (e *Engine) Wait(ctx context.Context, name string, within time.Duration) (*State, error) {
	var s *State
	until := time.Now().Add(within)
	err := mailbox.AwaitWithin(ctx, e.deps.Journals, name, within, func() (ended bool, err error) {
		if s, err = e.State(ctx, name); err != nil || s.Ended() {
			return true, err
		}
		return false, retry.Sleep(ctx, min(waitPause, time.Until(until))) // Batches the changes of the interval.
	})
	return s, err
}

// Update changes tags, metadata or the number of active samples. It returns when the driver has journaled the change.
// It fails with ETAG_MISMATCH if etag is not empty and differs from the evaluation's when its driver applies the
// change.
func (e *Engine) Update(ctx context.Context, name string, u Update, reason, etag string) (*State, error) {
	var (
		s   *State
		seq int64
	)
	err := e.send(ctx, name, resource.NewID(), command{Type: commandUpdate, Reason: reason, Update: &u, Etag: etag}, mailbox.Mail{
		Read: func(ctx context.Context) (ended bool, err error) {
			s, err = e.State(ctx, name)
			return err == nil && s.Ended(), err
		},
		Enough: func(taken int64) bool { seq = taken; return taken > 0 },
	})
	switch {
	case err != nil:
		return nil, err
	case seq == 0:
		return nil, rpcerr.RunFinished(name, strings.TrimPrefix(s.Eval.GetState().String(), "EVAL_STATE_"), "%s has ended; only one at work can be changed: make another evaluation with the new values", name)
	}
	if err := e.applied(ctx, name, seq, etag); err != nil {
		return nil, err
	}
	return e.State(ctx, name)
}

// applied fails if the event that records an update changed nothing: with ETAG_MISMATCH if the etag was another, with
// JOURNAL_FENCED if the update came after the end and the evaluation was resumed since.
func (e *Engine) applied(ctx context.Context, name string, seq int64, etag string) error {
	head, err := e.open(ctx, name)
	if err != nil {
		return err
	}
	taken, err := e.deps.Journals.Read(ctx, head.Ref, journal.Range{After: seq - 1, Limit: 1, Bare: true})
	switch {
	case err != nil:
		return journal.Gone(err, name)
	case len(taken) == 0:
		return nil
	case taken[0].GetEvalUpdated() == nil:
		return rpcerr.JournalFenced(head.Epoch, "%s had ended, and was resumed since; try again", name)
	case taken[0].GetEvalUpdated().GetOutdated():
		return resource.EtagMismatch(name, etag)
	}
	return nil
}

// send sends a command to the driver of an evaluation. M defines what to wait for.
func (e *Engine) send(ctx context.Context, name, id string, c command, m mailbox.Mail) error {
	c.Actor = auth.FromContext(ctx).Actor()
	body, err := json.Marshal(c)
	if err != nil {
		return err
	}
	m.Journal, m.RequestID = name, id
	m.Command = journal.Command{ID: c.Type + "/" + id, Body: body}
	m.Posted = func() { e.Wake(name) }
	return mailbox.Send(ctx, e.deps.Journals, m)
}

// Wake looks at the inbox of an evaluation, if this replica drives it.
func (e *Engine) Wake(name string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if d := e.drivers[name]; d != nil {
		d.notify()
	}
}

// isDriven reports whether a driver may begin runs of an evaluation without having read its inbox. The journal of
// another replica counts as driven: should that replica be dead, a live one adopts the journal.
func (e *Engine) isDriven(ctx context.Context, name string) (bool, error) {
	head, err := e.open(ctx, name)
	if err != nil {
		return false, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.drivers[name] != nil || head.Owner != e.deps.Replica, nil
}

// Resume continues an evaluation that has ended with unfinished samples: it was cancelled or failed, or its rule let
// samples fail. An active evaluation is returned unchanged. An evaluation without unfinished samples is an error: the
// caller would take its old results for new ones.
func (e *Engine) Resume(ctx context.Context, name string) (*State, error) {
	head, err := e.open(ctx, name)
	if err != nil {
		return nil, err
	}
	d, err := e.load(ctx, head)
	if err != nil {
		return nil, err
	}
	if d.state.Cancel != nil {
		return nil, rpcerr.JournalFenced(head.Epoch, "%s is being cancelled, and some of its samples have not ended; resume it when they have", name)
	}
	if !d.state.Ended() {
		return d.state, nil
	}
	if d.state.Eval.GetState() == agentv1.EvalState_EVAL_STATE_SUCCEEDED && !slices.ContainsFunc(d.state.Slots, func(s Slot) bool { return s.undone() }) {
		return nil, rpcerr.RunFinished(name, "SUCCEEDED", "%s has succeeded and all its samples are done, so there is nothing to resume; make a new evaluation to run it again", name)
	}
	if err := d.prepare(ctx); err != nil {
		return nil, err
	}
	// This replica drives it from here on, whichever did before.
	late, err := d.late(ctx)
	if err != nil {
		return nil, err
	}
	d.head, err = e.deps.Journals.Take(ctx, d.head, e.deps.Replica, 0)
	if err == nil {
		err = d.append(ctx, late, &agentv1.Event{Actor: auth.FromContext(ctx).Actor(), Kind: &agentv1.Event_EvalStateChanged{EvalStateChanged: &agentv1.EvalStateChanged{
			State: agentv1.EvalState_EVAL_STATE_RUNNING, Reason: "resumed",
		}}})
	}
	switch {
	case errors.Is(err, journal.ErrFenced):
		return nil, rpcerr.JournalFenced(head.Epoch, "%s was changed by another call; try again", name)
	case err != nil:
		return nil, err
	}
	e.drive(d) //nolint:contextcheck // A driver outlives the call that starts it.
	return e.State(ctx, name)
}

// late returns the ids of the commands that came too late for an evaluation that has ended, which the resumed one must
// not apply.
func (d *loop) late(ctx context.Context) (ids []string, err error) {
	pending, err := d.engine.deps.Journals.Pending(ctx, d.head.Ref)
	for _, p := range pending {
		var c command
		if json.Unmarshal(p.Body, &c) == nil && (c.Type == commandCancel || c.Type == commandUpdate) {
			ids = append(ids, p.ID)
		}
	}
	return ids, err
}
