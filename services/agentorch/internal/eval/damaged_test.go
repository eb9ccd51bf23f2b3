package eval_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/testing/protocmp"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
)

// smudged gives rows of runs whose views cannot be read.
type smudged struct {
	journal.Store
	run string
}

func (s smudged) List(ctx context.Context, q journal.Query) ([]journal.Listed, error) {
	rows, err := s.Store.List(ctx, q)
	for i := range rows {
		if strings.HasSuffix(rows[i].Name, s.run) {
			rows[i].View = []byte("damaged")
		}
	}
	return rows, err
}

// TestADamagedRowStopsNoEvaluation damages the row of one run, and the row and the journal of another. The journal
// replaces the row. Without it the sample fails, and the others continue.
func TestADamagedRowStopsNoEvaluation(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		verdict *agentv1.Run
		reading func(string) error
		state   agentv1.RunState
		reason  string
	}{
		"a run with scores":             {scored("C"), nil, agentv1.RunState_RUN_STATE_SUCCEEDED, ""},
		"a run that failed":             {failed(), nil, agentv1.RunState_RUN_STATE_FAILED, "INTERNAL"},
		"a run whose journal is too":    {scored("C"), unreadable("/r1"), agentv1.RunState_RUN_STATE_FAILED, "INTERNAL"},
		"a failed run whose journal is": {failed(), unreadable("/r1"), agentv1.RunState_RUN_STATE_FAILED, "INTERNAL"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := start(t, func(sample string, _, _ int) *agentv1.Run {
				if sample == "1" {
					return tt.verdict
				}
				return scored("C")
			})
			b.runs.reading = tt.reading
			b.again(t, func(s journal.Store) journal.Store { return smudged{s, "/r1"} })
			s := spec(2)
			s.FailOnError = &agentv1.FailOnError{Rule: &agentv1.FailOnError_Enabled{}}
			made, err := b.engine.Create(t.Context(), "default", s, "", false)
			require.NoError(t, err)
			end := b.ended(t, made.Eval.GetName())
			assert.Equal(t, agentv1.EvalState_EVAL_STATE_SUCCEEDED, end.Eval.GetState(), "%v", end.Eval.GetError())
			first := end.Find("1.1").Finished
			assert.Equal(t, tt.state, first.GetState())
			assert.Equal(t, tt.reason, first.GetError().GetReason())
			if tt.reading == nil {
				assert.Empty(t, cmp.Diff(tt.verdict.GetUsage(), first.GetUsage(), protocmp.Transform()))
				assert.Empty(t, cmp.Diff(tt.verdict.GetScores(), first.GetContent().GetScores(), protocmp.Transform()))
			}
			assert.Equal(t, agentv1.RunState_RUN_STATE_SUCCEEDED, end.Find("2.1").Finished.GetState())
		})
	}
}

// unreadable damages the journals of runs whose names end so.
func unreadable(suffix string) func(string) error {
	return func(run string) error {
		if strings.HasSuffix(run, suffix) {
			return fmt.Errorf("read: %w", journal.ErrUnreadable)
		}
		return nil
	}
}

// torn gives no event of one journal from the third on.
type torn struct {
	journal.Store
	ref journal.Ref
}

func (s torn) Read(ctx context.Context, ref journal.Ref, r journal.Range) ([]*agentv1.Event, error) {
	events, err := s.Store.Read(ctx, ref, r)
	if ref != s.ref {
		return events, err
	}
	whole := slices.IndexFunc(events, func(e *agentv1.Event) bool { return e.GetSeq() >= 3 })
	if whole == 0 {
		return nil, journal.ErrUnreadable
	}
	return events[:max(whole, 0)], err
}

// TestAnEvaluationWhoseJournalIsDamagedCanBeEndedAndDeleted has no driver that could end it. Who asks sees what can be
// read of it, as failed.
func TestAnEvaluationWhoseJournalIsDamagedCanBeEndedAndDeleted(t *testing.T) {
	t.Parallel()
	b := start(t, func(string, int, int) *agentv1.Run { return working() })
	made, err := b.engine.Create(t.Context(), "default", spec(5), "", false)
	require.NoError(t, err)
	name := made.Eval.GetName()
	b.wait(t, name, func(e *agentv1.Eval) bool { return e.GetProgress().GetRunning() == 3 })
	head, err := b.journals.Open(t.Context(), name)
	require.NoError(t, err)
	b.again(t, func(s journal.Store) journal.Store { return torn{s, head.Ref} })
	adopting := make(chan struct{})
	go func() { defer close(adopting); b.engine.Adopt(head) }()
	require.Eventually(t, func() bool { return len(b.engine.Waits(name)) == 1 }, waittest.Bound, 10*time.Millisecond, "the evaluation says that it waits")
	s, err := b.engine.State(t.Context(), name)
	require.NoError(t, err)
	assert.Equal(t, agentv1.EvalState_EVAL_STATE_FAILED, s.Eval.GetState())
	assert.Equal(t, journal.RowError().GetMessage(), s.Eval.GetError().GetMessage())
	assert.Equal(t, "t", s.Eval.GetSpec().GetTask(), "what can be read is there")
	require.ErrorIs(t, b.journals.Delete(t.Context(), name), journal.ErrOpen)

	for range 2 { // It may be repeated.
		s, err = b.engine.Cancel(t.Context(), name, "", "enough")
		require.NoError(t, err)
		assert.Equal(t, agentv1.EvalState_EVAL_STATE_FAILED, s.Eval.GetState())
		now, err := b.journals.Open(t.Context(), name)
		require.NoError(t, err)
		assert.Equal(t, head.Seq+1, now.Seq)
	}
	rows, err := b.journals.List(t.Context(), journal.Query{Kind: journal.KindRun, Parent: name, Open: true})
	require.NoError(t, err)
	assert.Empty(t, rows, "its runs were cancelled")
	waittest.For(t, adopting, "the end of the tries to take it up")
	assert.Empty(t, b.engine.Waits(name))
	require.NoError(t, b.journals.Delete(t.Context(), name))
}

// TestADriverOfADamagedJournalIsEnded has the journal damaged under the driver, which knows it from before.
func TestADriverOfADamagedJournalIsEnded(t *testing.T) {
	t.Parallel()
	b := start(t, func(string, int, int) *agentv1.Run { return working() })
	tear := &tearable{}
	b.again(t, func(s journal.Store) journal.Store { tear.Store = s; return tear })
	made, err := b.engine.Create(t.Context(), "default", spec(5), "", false)
	require.NoError(t, err)
	name := made.Eval.GetName()
	b.wait(t, name, func(e *agentv1.Eval) bool { return e.GetProgress().GetRunning() == 3 })
	head, err := b.journals.Open(t.Context(), name)
	require.NoError(t, err)
	tear.ref.Store(int64(head.Ref))
	other := b.newEngine() // It has not read the journal yet.
	defer other.Close()
	_, err = other.Cancel(t.Context(), name, "", "enough")
	require.NoError(t, err)
	waittest.Return(t, b.engine.Close, "the driver")
	assert.Len(t, b.runs.byName, 3, "no run was made after the cancel")
	require.NoError(t, b.journals.Delete(t.Context(), name))
}

// tearable is torn as soon as it has a journal.
type tearable struct {
	journal.Store
	ref atomic.Int64
}

func (s *tearable) Read(ctx context.Context, ref journal.Ref, r journal.Range) ([]*agentv1.Event, error) {
	return torn{s.Store, journal.Ref(s.ref.Load())}.Read(ctx, ref, r)
}
