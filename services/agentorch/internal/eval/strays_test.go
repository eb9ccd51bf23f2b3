package eval_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
)

// unadmitted is a store that journals no admission of a sample: its driver is as one that ends between a run and its
// admission.
type unadmitted struct {
	journal.Store
	tried atomic.Bool
}

func (u *unadmitted) Append(ctx context.Context, a journal.Append) error {
	if a.Entries[0].Event.GetSampleAdmitted() == nil {
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

// TestADriverThatLostItsEvaluationBeginsNoRun has another replica take the evaluation while a run is about to be made.
func TestADriverThatLostItsEvaluationBeginsNoRun(t *testing.T) {
	t.Parallel()
	b := start(t, func(string, int, int) *agentv1.Run { return working() })
	taken := make(chan struct{})
	b.runs.making = func(eval string) {
		defer close(taken)
		head, err := b.journals.Open(t.Context(), eval)
		assert.NoError(t, err)
		_, err = b.journals.Take(t.Context(), head, "another", 0)
		assert.NoError(t, err)
	}
	made, err := b.engine.Create(t.Context(), "default", spec(5), "", false)
	require.NoError(t, err)
	waittest.For(t, taken, "the first run")
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
	require.NoError(t, b.journals.Post(t.Context(), eval, journal.Command{ID: "c", Body: []byte(`{"type": "cancel", "reason": "enough"}`)}))
	require.NoError(t, b.journals.Post(t.Context(), eval, journal.Command{ID: "u", Body: []byte(`{"type": "update", "update": {"tags": ["late"]}}`)}))
	again.Store(true)
	_, err = b.engine.Resume(t.Context(), eval)
	require.NoError(t, err)
	end := b.ended(t, eval)
	assert.Equal(t, agentv1.EvalState_EVAL_STATE_SUCCEEDED, end.Eval.GetState())
	assert.Empty(t, end.Eval.GetSpec().GetTags())
}
