package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
)

// supersededError is the error if an owner of effects refuses the run because it knows a newer epoch.
type supersededError struct {
	epoch int64 // of the run, as the owner knows it; 0 if the owner did not report it
}

func (e *supersededError) Error() string {
	return fmt.Sprintf("an owner of effects has the epoch %d of the run", e.epoch)
}

func (e *supersededError) Unwrap() error { return journal.ErrFenced }

// fenced returns an error if a pending effect found that another replica owns the run.
func fenced(all []mail) error {
	for _, m := range all {
		if m.fenced {
			return &supersededError{m.epoch}
		}
	}
	return nil
}

// maxEpoch is the highest epoch that owners of effects take, by the rule of Attribution.owner_epoch. No run is raised
// above it.
const maxEpoch = 1<<62 - 1

// raise takes the run at an epoch above the one that an owner of effects knows, if the journal says that this replica
// still owns the run. This happens when the journal was restored from an older copy, or when another program made calls
// in the name of the run. It returns cause if nothing can be raised or no such epoch exists.
func (a *actor) raise(ctx context.Context, cause error) error {
	refused, ok := errors.AsType[*supersededError](cause)
	switch {
	case !ok || refused.epoch >= maxEpoch:
		return cause
	case refused.epoch < a.head.Epoch:
		return nil // The epoch was raised in the meantime.
	}
	head, err := a.engine.deps.Store.Take(ctx, a.head, a.engine.Replica(), refused.epoch)
	if err != nil {
		return err
	}
	a.engine.deps.Logger.Warn("an owner of effects has a newer epoch of the run than its journal, as after the restore of an older copy; the run goes on above it",
		"run", head.Name, "epoch", head.Epoch)
	a.head = head
	return nil
}
