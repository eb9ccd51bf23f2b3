package eval

import (
	"context"
	"errors"
	"fmt"
	"iter"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
)

// readable folds a journal up to the first unreadable event, which fails the evaluation, since no driver can continue
// it. The error is that of the event. The state is valid if the error is [journal.ErrUnreadable].
func readable(head journal.Head, events iter.Seq2[*agentv1.Event, error]) (*State, error) {
	s := &State{}
	for event, err := range events {
		if err != nil {
			if s.Eval == nil {
				s.Eval = &agentv1.Eval{Name: head.Name, Progress: &agentv1.EvalProgress{}}
			}
			s.Damaged = true
			s.Eval.State, s.Eval.Error = agentv1.EvalState_EVAL_STATE_FAILED, journal.RowError()
			return s, err
		}
		s.Apply(event)
	}
	return s, nil
}

// FoldRow returns the row of an evaluation from its journal alone. If the journal cannot be read, it returns the row of
// a failed evaluation with the error.
func FoldRow(head journal.Head, events iter.Seq2[*agentv1.Event, error]) (journal.Row, error) {
	s, err := readable(head, events)
	return rowOf(s), err
}

// damaged returns the readable part of an evaluation with a damaged journal.
func (e *Engine) damaged(ctx context.Context, head journal.Head) (*State, error) {
	s, err := readable(head, journal.All(ctx, e.deps.Journals, head.Ref, 0))
	if err != nil && !errors.Is(err, journal.ErrUnreadable) {
		return nil, fmt.Errorf("read %s: %w", head.Name, journal.Gone(err, head.Name))
	}
	return s, nil
}

// abandon ends an evaluation whose damaged journal no driver can continue. It cancels the active runs and closes the
// journal, so that the evaluation can be deleted when the runs have ended. It is idempotent.
func (e *Engine) abandon(ctx context.Context, s *State, id, reason string) (*State, error) {
	name := s.Eval.GetName()
	head, err := e.open(ctx, name)
	if err != nil {
		return nil, err
	}
	rows, err := e.deps.Journals.List(ctx, journal.Query{Refs: []journal.Ref{head.Ref}})
	if err != nil {
		return nil, err
	}
	if len(rows) == 0 || !rows[0].Done {
		end := newEvent(head.Seq+1, &agentv1.Event{Kind: &agentv1.Event_EvalStateChanged{EvalStateChanged: &agentv1.EvalStateChanged{
			State: agentv1.EvalState_EVAL_STATE_FAILED, Reason: reason, Error: journal.RowError(),
		}}})
		s.Eval.StateReason, s.Eval.EndTime = reason, end.GetTime()
		row := rowOf(s)
		// After this append, a driver that loaded the evaluation before the damage can no longer append or create runs.
		if err := e.deps.Journals.Append(ctx, journal.Append{Head: head, Entries: []journal.Entry{{Event: end}}, Row: &row}); err != nil {
			return nil, fmt.Errorf("end %s: %w", name, err)
		}
		e.deps.Logger.Warn("an evaluation whose journal cannot be read was ended", "eval", name, "reason", reason)
	}
	return s, e.cancelOpen(ctx, name, id, reason)
}

// cancelOpen cancels the runs of an evaluation that have not ended according to their rows.
func (e *Engine) cancelOpen(ctx context.Context, name, id, reason string) error {
	var runs []string
	rows, err := e.deps.Journals.List(ctx, journal.Query{Kind: journal.KindRun, Parent: name, Open: true, Limit: maxSlots})
	for _, row := range rows {
		runs = append(runs, row.Name)
	}
	if err != nil || len(runs) == 0 {
		return err
	}
	return e.deps.Runs.CancelAll(ctx, runs, id, reason)
}
