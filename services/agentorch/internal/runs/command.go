package runs

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/proto"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/pkg/resource"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/engine/inbox"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/mailbox"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/run"
)

// Command is an operator's command to a run.
type Command struct {
	// Run is the name of the run.
	Run string
	// Kind begins the command's id in the inbox, such as `cancel`.
	Kind string
	// RequestID makes the command idempotent; if empty, the command gets a new id.
	RequestID string
	// Principal is the operator, as journals name it.
	Principal string
	// Request is the request, as [inbox.Command] accepts it.
	Request proto.Message
}

// Steer sends a command and waits until the run has applied it. It returns the number of the event that records it. It
// fails with RUN_FINISHED if the run has ended. A repeated command gets the same answer again. A command had no effect
// if its etag was outdated when it was applied (ETAG_MISMATCH), if its agent was not active (INVALID_REQUEST), or if
// its tool call did not run (CALL_NOT_OPEN).
func (r *Runs) Steer(ctx context.Context, c Command) (seq int64, err error) {
	f := r.fold(c.Run)
	return r.steer(ctx, c, f)
}

func (r *Runs) steer(ctx context.Context, c Command, f *fold) (seq int64, err error) {
	err = r.send(ctx, c, f, func(taken int64) bool { seq = taken; return taken > 0 })
	if err != nil {
		return 0, err
	}
	if seq == 0 {
		return 0, rpcerr.RunFinished(c.Run, strings.TrimPrefix(f.state.Phase.String(), "RUN_STATE_"), "%s has ended", c.Run)
	}
	if _, err := f.read(ctx); err != nil { // It may have been taken since.
		return 0, err
	}
	if f.taken == nil {
		return 0, rpcerr.Internal("the journal of %s does not have the command that it took", c.Run)
	}
	if f.taken.GetCommandReceived().GetOutdated() {
		return 0, outdated(c)
	}
	return f.taken.GetSeq(), nil
}

// outdated is the error if a command had no effect.
func outdated(c Command) error {
	switch q := c.Request.(type) {
	case *agentv1.CancelCallRequest:
		return rpcerr.CallNotOpen(c.Run, q.GetCallId(), "no call %s of %s runs; it has not begun, or has ended", q.GetCallId(), c.Run)
	case interface{ GetSpan() string }:
		return rpcerr.InvalidField("span", "no agent of the span %q is at work in %s", q.GetSpan(), c.Run)
	case interface{ GetEtag() string }:
		return resource.EtagMismatch(c.Run, q.GetEtag())
	}
	return rpcerr.Internal("%s took a command without effect", c.Run)
}

// Stop is Steer for a command that stops effects of a run that continues. It returns when they have ended or, if that
// takes longer than cancelPatience, with stopping set.
func (r *Runs) Stop(ctx context.Context, c Command) (seq int64, stopping bool, err error) {
	f := r.fold(c.Run)
	if seq, err = r.steer(ctx, c, f); err != nil {
		return 0, false, err
	}
	began := time.Now()
	err = mailbox.Await(ctx, r.deps.Store, c.Run, cancelPatience, func() (bool, error) {
		ended, err := f.read(ctx)
		stopping = !ended && slices.ContainsFunc(f.state.Open, func(i *run.Intent) bool { return i.Seq() < seq && i.Interrupted() })
		return !stopping || time.Since(began) >= cancelPatience, err
	})
	return seq, stopping, err
}

// cancelPatience is how long Cancel waits for open effects to end.
const cancelPatience = 500 * time.Millisecond

// Cancel ends a run. It returns when the cancel is durable: once no effect is open any more or, if that takes longer
// than cancelPatience, with the run still being cancelled. No effect of the agent starts after that. A run that has
// ended is returned unchanged.
func (r *Runs) Cancel(ctx context.Context, c Command) (*agentv1.Run, error) {
	f := r.fold(c.Run)
	err := r.send(ctx, c, f, func(taken int64) bool {
		return taken > 0 && f.state.Cancel != nil || f.state.TooNew // A later version takes the command up later.
	})
	if err != nil {
		return nil, err
	}
	began := time.Now()
	err = mailbox.Await(ctx, r.deps.Store, c.Run, cancelPatience, func() (bool, error) {
		ended, err := f.read(ctx)
		settled := ended || f.state.Cancel != nil && f.state.Cancel.Acknowledged
		return settled || time.Since(began) >= cancelPatience, err
	})
	if err != nil {
		return nil, err
	}
	view := f.state.View(false)
	view.Cancelling = !f.state.Finished
	return view, nil
}

// send posts a command and waits until the run has ended, or enough returns true for the number of the event that
// recorded the command, 0 before. F is the fold of the run at that time.
func (r *Runs) send(ctx context.Context, c Command, f *fold, enough func(taken int64) bool) error {
	id := cmp.Or(c.RequestID, resource.NewID())
	f.command = c.Kind + "/" + id
	packed, err := r.pack(ctx, inbox.Command{ID: f.command, Principal: c.Principal, Request: c.Request})
	if err != nil {
		return err
	}
	return mailbox.Send(ctx, r.deps.Store, mailbox.Mail{
		Journal: c.Run, Command: packed, RequestID: id, Posted: func() { r.deps.Engine.Wake(c.Run) },
		Read: f.read, Enough: enough,
	})
}

// Post puts a command into a run's inbox and wakes its owner. It returns when the command is durable, not when it is
// applied.
func (r *Runs) Post(ctx context.Context, name string, c inbox.Command) error {
	packed, err := r.pack(ctx, c)
	if err != nil {
		return err
	}
	if err := r.deps.Store.Post(ctx, name, packed); err != nil {
		return err
	}
	r.deps.Engine.Wake(name)
	return nil
}

// pack encodes a command with its large values in the blob store.
func (r *Runs) pack(ctx context.Context, c inbox.Command) (journal.Command, error) {
	small, err := c.Offload(ctx, r.deps.Blobs)
	if err != nil {
		return journal.Command{}, err
	}
	return small.Pack()
}

// cancelsAtOnce bounds the concurrent cancels; the store makes simultaneous ones durable together.
const cancelsAtOnce = 256

// CancelAll cancels many runs concurrently and returns when that is durable for all; it does not wait for them to end.
// It continues after a failure and returns one of the errors. It skips runs that received a cancel with this id before,
// even with another reason.
func (r *Runs) CancelAll(ctx context.Context, names []string, id, reason string) error {
	var sending errgroup.Group
	sending.SetLimit(cancelsAtOnce)
	for _, name := range names {
		sending.Go(func() error {
			err := r.Post(ctx, name, inbox.Command{ID: "cancel/" + id, Principal: system, Request: &agentv1.CancelRunRequest{Name: name, Reason: reason}})
			if errors.Is(err, journal.ErrReused) {
				return nil
			}
			return err
		})
	}
	return sending.Wait()
}
