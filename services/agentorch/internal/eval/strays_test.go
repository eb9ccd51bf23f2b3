package eval_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/eval"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
)

// unadmitted is a store that journals so many admissions of samples and no other: its driver is as one that ends
// between a run and its admission.
type unadmitted struct {
	journal.Store
	admits atomic.Int32
	tried  atomic.Bool
}

func (u *unadmitted) Append(ctx context.Context, a journal.Append) error {
	if a.Entries[0].Event.GetSampleAdmitted() == nil || u.admits.Add(-1) >= 0 {
		return u.Store.Append(ctx, a)
	}
	u.tried.Store(true)
	return errors.New("the disk is full")
}

// open lists the names of the open runs of an evaluation.
func (b *bench) open(t *testing.T, eval string) (names []string) {
	t.Helper()
	rows, err := b.journals.List(t.Context(), journal.Query{Kind: journal.KindRun, Parent: eval, Open: true})
	require.NoError(t, err)
	for _, row := range rows {
		names = append(names, row.Name)
	}
	return names
}

// TestACancelReachesARunWhoseAdmissionWasNotJournaled has a driver end between a run and its admission. The evaluation
// is cancelled before another driver has journaled that.
func TestACancelReachesARunWhoseAdmissionWasNotJournaled(t *testing.T) {
	t.Parallel()
	for name, models := range map[string][]string{"one model": {"mockllm/model"}, "two models": {"mockllm/model", "mockllm/other"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := start(t, func(string, int, int) *agentv1.Run { return working() })
			crashing := &unadmitted{}
			b.again(t, func(s journal.Store) journal.Store { crashing.Store = s; return crashing })
			wanted := spec(2)
			wanted.Models = nil
			for _, model := range models {
				wanted.Models = append(wanted.Models, &agentv1.ModelRef{Model: model})
			}
			made, err := b.engine.Create(t.Context(), "default", wanted, "", false)
			require.NoError(t, err)
			eval := made.Eval.GetName()
			require.Eventually(t, crashing.tried.Load, waittest.Bound, time.Millisecond)
			b.again(t, nil)
			require.Len(t, b.open(t, eval), 1)
			require.NoError(t, b.journals.Post(t.Context(), eval, journal.Command{ID: "c", Body: []byte(`{"type": "cancel", "reason": "enough"}`)}))
			head, err := b.journals.Open(t.Context(), eval)
			require.NoError(t, err)
			b.engine.Adopt(head)

			end := b.ended(t, eval)
			assert.Equal(t, agentv1.EvalState_EVAL_STATE_CANCELLED, end.Eval.GetState())
			assert.Empty(t, b.open(t, eval), "no run goes on")
			assert.EqualValues(t, 1, end.Eval.GetProgress().GetCancelled(), "it counts")
			assert.Len(t, b.runs.byName, 1)
		})
	}
}

// TestASampleWhoseRunWasCancelledBeforeItsAdmissionIsRunAgain resumes such an evaluation.
func TestASampleWhoseRunWasCancelledBeforeItsAdmissionIsRunAgain(t *testing.T) {
	t.Parallel()
	cancelled := atomic.Bool{}
	b := start(t, func(string, int, int) *agentv1.Run {
		if cancelled.Load() {
			return scored("C")
		}
		return working()
	})
	crashing := &unadmitted{}
	b.again(t, func(s journal.Store) journal.Store { crashing.Store = s; return crashing })
	made, err := b.engine.Create(t.Context(), "default", spec(2), "", false)
	require.NoError(t, err)
	eval := made.Eval.GetName()
	require.Eventually(t, crashing.tried.Load, waittest.Bound, time.Millisecond)
	b.again(t, nil)
	require.NoError(t, b.journals.Post(t.Context(), eval, journal.Command{ID: "c", Body: []byte(`{"type": "cancel"}`)}))
	head, err := b.journals.Open(t.Context(), eval)
	require.NoError(t, err)
	b.engine.Adopt(head)
	b.ended(t, eval)
	cancelled.Store(true)
	_, err = b.engine.Resume(t.Context(), eval)
	require.NoError(t, err)
	end := b.ended(t, eval)
	assert.EqualValues(t, 2, end.Eval.GetProgress().GetSucceeded())
	assert.Len(t, b.runs.byName, 3)
}

// TestARunWithoutAnAdmissionIsOfTheSlotItWasMadeFor has two models of one name, of which the first one's sample is to
// be run again when the second one's run is found.
func TestARunWithoutAnAdmissionIsOfTheSlotItWasMadeFor(t *testing.T) {
	t.Parallel()
	again, made := atomic.Bool{}, atomic.Int32{}
	b := start(t, func(string, int, int) *agentv1.Run {
		switch {
		case again.Load():
			return scored("C")
		case made.Add(1) == 1:
			return failed()
		}
		return working()
	})
	crashing := &unadmitted{}
	crashing.admits.Store(1)
	b.again(t, func(s journal.Store) journal.Store { crashing.Store = s; return crashing })
	wanted := spec(1)
	wanted.RetryOnError = 1
	wanted.Models = append(wanted.Models, &agentv1.ModelRef{Model: wanted.GetModels()[0].GetModel(), ModelArgsJson: `{"temperature": 1}`})
	created, err := b.engine.Create(t.Context(), "default", wanted, "", false)
	require.NoError(t, err)
	eval := created.Eval.GetName()
	require.Eventually(t, crashing.tried.Load, waittest.Bound, time.Millisecond)
	b.again(t, nil)
	require.NoError(t, b.journals.Post(t.Context(), eval, journal.Command{ID: "c", Body: []byte(`{"type": "cancel"}`)}))
	head, err := b.journals.Open(t.Context(), eval)
	require.NoError(t, err)
	b.engine.Adopt(head)
	end := b.ended(t, eval)
	assert.Equal(t, []string{"projects/default/runs/r1", "projects/default/runs/r2"}, []string{end.Slots[0].Run, end.Slots[1].Run})

	again.Store(true)
	_, err = b.engine.Resume(t.Context(), eval)
	require.NoError(t, err)
	assert.EqualValues(t, 2, b.ended(t, eval).Eval.GetProgress().GetSucceeded())
}

// TestADriverThatLostItsEvaluationBeginsNoRun has another replica take the evaluation while a run is about to be made.
func TestADriverThatLostItsEvaluationBeginsNoRun(t *testing.T) {
	t.Parallel()
	b := start(t, func(string, int, int) *agentv1.Run { return working() })
	refused := make(chan error, 1)
	b.runs.notMade = func(err error) { refused <- err }
	b.runs.making = func(eval string) {
		head, err := b.journals.Open(t.Context(), eval)
		assert.NoError(t, err)
		_, err = b.journals.Take(t.Context(), head, "another", 0)
		assert.NoError(t, err)
	}
	made, err := b.engine.Create(t.Context(), "default", spec(5), "", false)
	require.NoError(t, err)
	require.ErrorIs(t, waittest.For(t, refused, "the store to refuse the run"), journal.ErrFenced)
	b.engine.Close()
	assert.Empty(t, b.open(t, made.Eval.GetName()))
}

// TestACommandThatCameTooLateIsNotForTheResumedEvaluation has commands come between the last look of a driver and the
// end that it journals. Their callers got the answer that the evaluation had ended.
func TestACommandThatCameTooLateIsNotForTheResumedEvaluation(t *testing.T) {
	t.Parallel()
	again := atomic.Bool{}
	b := start(t, func(string, int, int) *agentv1.Run {
		if again.Load() {
			return scored("C")
		}
		return failed()
	})
	made, err := b.engine.Create(t.Context(), "default", spec(2), "", false)
	require.NoError(t, err)
	eval := made.Eval.GetName()
	require.Equal(t, agentv1.EvalState_EVAL_STATE_FAILED, b.ended(t, eval).Eval.GetState())
	require.NoError(t, b.journals.Post(t.Context(), eval, journal.Command{ID: "cancel/late", Body: []byte(`{"type":"cancel","reason":"enough"}`)}))
	require.NoError(t, b.journals.Post(t.Context(), eval, journal.Command{ID: "u", Body: []byte(`{"type": "update", "update": {"tags": ["late"]}}`)}))
	again.Store(true)
	_, err = b.engine.Resume(t.Context(), eval)
	require.NoError(t, err)
	end := b.ended(t, eval)
	assert.Equal(t, agentv1.EvalState_EVAL_STATE_SUCCEEDED, end.Eval.GetState())
	assert.Empty(t, end.Eval.GetSpec().GetTags())
}

// TestACommandThatCameTooLateIsNotSaidToBeApplied has an evaluation be resumed while the caller of such a command
// waits.
func TestACommandThatCameTooLateIsNotSaidToBeApplied(t *testing.T) {
	t.Parallel()
	b := start(t, func(string, int, int) *agentv1.Run { return working() })
	late := &lateUpdates{}
	b.again(t, func(s journal.Store) journal.Store { late.Store = s; return late })
	made, err := b.engine.Create(t.Context(), "default", spec(1), "", false)
	require.NoError(t, err)
	name := made.Eval.GetName()
	cancel := func() {
		_, err := b.engine.Cancel(t.Context(), name, "first", "enough")
		assert.NoError(t, err)
		b.ended(t, name)
	}
	resume := func() {
		_, err := b.engine.Resume(t.Context(), name)
		assert.NoError(t, err)
	}
	late.before, late.after = cancel, resume
	_, err = b.engine.Update(t.Context(), name, eval.Update{Tags: &[]string{"late"}}, "", "")
	assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_JOURNAL_FENCED), "%v", err)
	_, err = b.engine.Cancel(t.Context(), name, "first", "enough")
	assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_JOURNAL_FENCED), "the cancel of before the resume is over: %v", err)
	_, err = b.engine.Cancel(t.Context(), name, "second", "enough")
	require.NoError(t, err)
	assert.Empty(t, b.ended(t, name).Eval.GetSpec().GetTags())
}

// lateUpdates is a store whose updates come after the end of an evaluation that is then resumed.
type lateUpdates struct {
	journal.Store
	before, after func()
}

func (l *lateUpdates) Post(ctx context.Context, name string, c journal.Command) error {
	if !strings.HasPrefix(c.ID, "update/") {
		return l.Store.Post(ctx, name, c)
	}
	l.before()
	defer l.after()
	return l.Store.Post(ctx, name, c)
}
