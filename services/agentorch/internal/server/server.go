// Package server serves RunService, ApprovalService and AdminService.
package server

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/evalfleet/evalfleet/pkg/auth"
	"github.com/evalfleet/evalfleet/pkg/chat"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/pkg/resource"
	"github.com/evalfleet/evalfleet/pkg/retry"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/agent"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/launch"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/note"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/run"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/turn"
)

// Deps is what the services work with.
type Deps struct {
	Store    journal.Store
	Launcher *launch.Launcher
	Agents   *agent.Registry
	// Notes is what is known of open effects.
	Notes *note.Board
	// Delete deletes a journal that is done.
	Delete func(ctx context.Context, name string) error
	Logger *slog.Logger
}

// Runs is the RunService. Its methods may be called concurrently.
type Runs struct {
	agentv1.UnimplementedRunServiceServer

	deps Deps
}

// NewRuns makes the RunService.
func NewRuns(deps Deps) *Runs { return &Runs{deps: deps} }

// principal names the caller in journals.
func principal(ctx context.Context) string {
	if name := auth.FromContext(ctx).Name; name != "" {
		return name
	}
	return "system"
}

// head opens a run's journal. Field names the request's field in errors.
func (s *Runs) head(ctx context.Context, field, name string) (journal.Head, error) {
	if _, err := resource.Parse(field, name, "runs"); err != nil {
		return journal.Head{}, err
	}
	head, err := s.deps.Store.Open(ctx, name)
	return head, journal.Gone(err, name)
}

// state folds a run's journal.
func (s *Runs) state(ctx context.Context, name string) (*run.State, error) {
	head, err := s.head(ctx, "name", name)
	if err != nil {
		return nil, err
	}
	return s.fold(ctx, head)
}

// fold folds a run's journal from its beginning.
func (s *Runs) fold(ctx context.Context, head journal.Head) (*run.State, error) {
	state, err := run.Fold(head.Name, nil, journal.All(ctx, s.deps.Store, head.Ref, 0))
	if err != nil {
		return nil, cannotFold(head, err)
	}
	state.Owner = head.Owner
	return state, nil
}

// follow folds in what has come to a run's journal since.
func (s *Runs) follow(ctx context.Context, head journal.Head, state *run.State) error {
	for event, err := range journal.All(ctx, s.deps.Store, head.Ref, state.Seq) {
		if err == nil {
			err = state.Apply(event)
		}
		if err != nil {
			return cannotFold(head, err)
		}
	}
	return nil
}

// cannotFold says that a journal cannot be read: a fault of ours, unless the error has a kind, as that of a store that is away.
func cannotFold(head journal.Head, err error) error {
	if errors.Is(err, journal.ErrNotFound) {
		return journal.Gone(err, head.Name)
	}
	if _, ok := rpcerr.As(err); ok {
		return rpcerr.Wrap(err, "cannot read the journal of %s", head.Name)
	}
	return rpcerr.Internal("cannot fold the journal of %s: %w", head.Name, err)
}

// view gives a run as a resource, with what it waits for now that its journal does not tell.
func (s *Runs) view(ctx context.Context, name string, full bool) (*agentv1.Run, error) {
	state, err := s.state(ctx, name)
	if err != nil {
		return nil, err
	}
	return s.live(state.View(full), state.Finished), nil
}

// live adds what only the engine knows of a run at work: what it waits for, and what is known of its open effects.
func (s *Runs) live(r *agentv1.Run, finished bool) *agentv1.Run {
	if finished {
		return r
	}
	for _, latest := range note.Latest(s.deps.Notes, note.OfRun(r.GetName()), 1) {
		r.Note = latest.GetNote()
		r.Retries += r.GetNote().GetFailedAttempts()
	}
	if wait := s.deps.Launcher.Waiting(r.GetName()); wait != nil {
		r.State, r.Wait = agentv1.RunState_RUN_STATE_WAITING, wait
	}
	return r
}

// finished says that a run has ended.
func finished(state *run.State) error {
	return rpcerr.RunFinished(state.Name, strings.TrimPrefix(state.Phase.String(), "RUN_STATE_"), "%s has ended", state.Name)
}

// send puts a command into a run's inbox and waits until reached says so of the run and of the number of the event that
// took the command, 0 before. A run that has ended takes none and is returned as it is; a command that it had taken
// before is answered again. The command's id is the request's, or a fresh one that begins as the command's did.
//
// While the store is away it waits for it, until ctx ends: an operator's wish counts most when something is wrong.
func (s *Runs) send(ctx context.Context, name, requestID string, c turn.Command, reached func(state *run.State, taken int64) bool) (*run.State, error) {
	if requestID == "" {
		requestID = chat.NewID()
	}
	for {
		state, err := s.sendOnce(ctx, name, requestID, c, reached)
		if !rpcerr.StoreAway(err) || retry.Sleep(ctx, storePause) != nil {
			return state, err
		}
	}
}

// storePause is how long a command waits before it asks a store again that was away.
const storePause = 500 * time.Millisecond

func (s *Runs) sendOnce(ctx context.Context, name, requestID string, c turn.Command, reached func(state *run.State, taken int64) bool) (*run.State, error) {
	head, err := s.head(ctx, "name", name)
	if err != nil {
		return nil, err
	}
	wake := s.deps.Store.Subscribe(name)
	defer wake.Close()
	state, err := s.fold(ctx, head)
	if err != nil {
		return nil, err
	}
	c.ID, c.Principal = c.ID+"/"+requestID, principal(ctx)
	if !state.Finished {
		err = s.deps.Launcher.Send(ctx, name, c)
	}
	if errors.Is(err, journal.ErrReused) {
		return nil, rpcerr.RequestIDReused(requestID, "request id %q was used for another command", requestID)
	}
	if err != nil {
		return nil, err
	}
	for {
		if err := s.follow(ctx, head, state); err != nil {
			return nil, err
		}
		// Asked after the state was read: of a run that had ended by then, the answer is the last one.
		taken, err := s.deps.Store.Taken(ctx, name, c.ID)
		if err != nil && !(state.Finished && errors.Is(err, journal.ErrNotFound)) {
			return nil, err
		}
		if reached(state, taken) || state.Finished {
			return state, nil
		}
		select {
		case <-wake.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
