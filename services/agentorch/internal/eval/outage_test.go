package eval_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/eval"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
)

var away error = rpcerr.StoreUnavailable("full", time.Second, "the disk is full")

// failing is a store whose methods fail as the test defines.
type failing struct {
	journal.Store
	away atomic.Bool
	// landed is what every third append to an eval answers although it is durable; nil is the truth.
	landed error

	mu      sync.Mutex
	appends int
}

func (s *failing) Append(ctx context.Context, a journal.Append) error {
	if s.away.Load() {
		return away
	}
	err := s.Store.Append(ctx, a)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.appends++; err == nil && s.landed != nil && s.appends%3 == 0 {
		return s.landed
	}
	return err
}

func (s *failing) Post(ctx context.Context, name string, c journal.Command) error {
	if s.away.Load() {
		return away
	}
	return s.Store.Post(ctx, name, c)
}

func (s *failing) List(ctx context.Context, q journal.Query) ([]journal.Listed, error) {
	if s.away.Load() {
		return nil, away
	}
	return s.Store.List(ctx, q)
}

// again recreates the bench's engine over a changed store.
func (b *bench) again(t *testing.T, wrap func(journal.Store) journal.Store) {
	t.Helper()
	b.engine.Close()
	b.wrap = wrap
	b.engine = b.newEngine()
}

// TestAnEvaluationGoesOnFromWhatIsDurable has appends become durable that were answered with an error.
func TestAnEvaluationGoesOnFromWhatIsDurable(t *testing.T) {
	t.Parallel()
	for says, landed := range map[string]error{"fenced": journal.ErrFenced, "away": away} {
		t.Run(says, func(t *testing.T) {
			t.Parallel()
			b := start(t, func(string, int, int) *agentv1.Run { return scored("C") })
			b.again(t, func(s journal.Store) journal.Store { return &failing{Store: s, landed: landed} })
			state, err := b.engine.Create(t.Context(), "default", spec(5), "", false)
			require.NoError(t, err)
			s := b.wait(t, state.Eval.GetName(), func(e *agentv1.Eval) bool { return e.GetEndTime() != nil })
			assert.Equal(t, agentv1.EvalState_EVAL_STATE_SUCCEEDED, s.Eval.GetState())
			assert.EqualValues(t, 5, s.Eval.GetProgress().GetSucceeded())
			for _, tries := range b.runs.tries {
				assert.Equal(t, 1, tries, "no sample got a second run")
			}
		})
	}
}

// TestAnEvaluationSaysThatItWaitsForTheStore stops and restarts the store, and cancels in between.
func TestAnEvaluationSaysThatItWaitsForTheStore(t *testing.T) {
	t.Parallel()
	b := start(t, func(string, int, int) *agentv1.Run { return working() })
	store := &failing{}
	b.again(t, func(s journal.Store) journal.Store { store.Store = s; return store })
	state, err := b.engine.Create(t.Context(), "default", spec(5), "", false)
	require.NoError(t, err)
	name := state.Eval.GetName()
	b.wait(t, name, func(e *agentv1.Eval) bool { return e.GetProgress().GetRunning() == 3 })
	store.away.Store(true)
	cancelled := make(chan error, 1)
	go func() {
		_, err := b.engine.Cancel(t.Context(), name, "", "enough")
		cancelled <- err
	}()
	b.runs.mu.Lock()
	for run, r := range b.runs.byName { // A row wakes the driver.
		head, err := b.journals.Open(t.Context(), run)
		require.NoError(t, err)
		r.State = agentv1.RunState_RUN_STATE_SUCCEEDED
		require.NoError(t, b.runs.end(t.Context(), head, r))
		break
	}
	b.runs.mu.Unlock()
	require.Eventually(t, func() bool { return len(b.engine.Waits(name)) == 1 }, waittest.Bound, 10*time.Millisecond, "the evaluation says that it waits")
	wait := b.engine.Waits(name)[0]
	assert.Equal(t, agentv1.WaitReason_WAIT_REASON_STORE, wait.GetReason())
	assert.Contains(t, wait.GetMessage(), "disk is full")
	assert.EqualValues(t, 2, wait.GetSamples(), "those that are not begun")
	store.away.Store(false)
	select {
	case err := <-cancelled:
		require.NoError(t, err)
	case <-time.After(waittest.Bound):
		t.Fatal("the cancel is late")
	}
	// The end is durable before the driver has gone.
	require.Eventually(t, func() bool { return len(b.engine.Waits(name)) == 0 }, waittest.Bound, 10*time.Millisecond, "it waits no more")
}

// unlisted refuses to list the ends of runs.
type unlisted struct {
	journal.Store
	refuses atomic.Bool
}

func (s *unlisted) List(ctx context.Context, q journal.Query) ([]journal.Listed, error) {
	if s.refuses.Load() && len(q.Refs) > 0 {
		return nil, errors.New("the disk gives nonsense")
	}
	return s.Store.List(ctx, q)
}

// TestACancelNeedsNoListOfRuns has a store that always refuses to list runs, one of which has ended. The active runs
// are cancelled; the evaluation ends when its results can be read.
func TestACancelNeedsNoListOfRuns(t *testing.T) {
	t.Parallel()
	b := start(t, func(string, int, int) *agentv1.Run { return working() })
	store := &unlisted{}
	b.patience = time.Millisecond
	b.again(t, func(s journal.Store) journal.Store { store.Store = s; return store })
	made, err := b.engine.Create(t.Context(), "default", spec(5), "", false)
	require.NoError(t, err)
	name := made.Eval.GetName()
	b.wait(t, name, func(e *agentv1.Eval) bool { return e.GetProgress().GetRunning() == 3 })
	store.refuses.Store(true)
	b.runs.mu.Lock()
	head, err := b.journals.Open(t.Context(), "projects/default/runs/r1")
	require.NoError(t, err)
	one := b.runs.byName[head.Name]
	one.State = agentv1.RunState_RUN_STATE_SUCCEEDED
	require.NoError(t, b.runs.end(t.Context(), head, one))
	b.runs.mu.Unlock()
	require.Eventually(t, func() bool { return len(b.engine.Waits(name)) == 1 }, waittest.Bound, 10*time.Millisecond, "the evaluation says that it waits")
	_, err = b.engine.Cancel(waittest.Context(t), name, "", "enough")
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		open, err := b.journals.List(t.Context(), journal.Query{Kind: journal.KindRun, Parent: name, Open: true})
		return err == nil && len(open) == 0
	}, waittest.Bound, 10*time.Millisecond, "the runs at work are cancelled")
	store.refuses.Store(false)
	end := b.wait(t, name, func(e *agentv1.Eval) bool { return e.GetEndTime() != nil })
	assert.Equal(t, agentv1.EvalState_EVAL_STATE_CANCELLED, end.Eval.GetState())
	assert.EqualValues(t, 2, end.Eval.GetProgress().GetCancelled())
	assert.EqualValues(t, 1, end.Eval.GetProgress().GetSucceeded())
	assert.Len(t, b.runs.byName, 3, "no run was made after the cancel")
}

// TestNoSampleBeginsWhileWorkIsHeld asks before every sample.
func TestNoSampleBeginsWhileWorkIsHeld(t *testing.T) {
	t.Parallel()
	var held atomic.Bool
	held.Store(true)
	b := start(t, func(string, int, int) *agentv1.Run { return scored("C") })
	b.hold = func() *agentv1.RunWait {
		if held.Load() {
			return &agentv1.RunWait{Reason: agentv1.WaitReason_WAIT_REASON_STORE, Message: "full"}
		}
		return nil
	}
	b.again(t, nil)
	state, err := b.engine.Create(t.Context(), "default", spec(2), "", false)
	require.NoError(t, err)
	name := state.Eval.GetName()
	require.Eventually(t, func() bool { return len(b.engine.Waits(name)) == 1 }, waittest.Bound, 10*time.Millisecond, "the evaluation says that it waits")
	assert.EqualValues(t, 2, b.engine.Waits(name)[0].GetSamples())
	assert.Empty(t, b.runs.byName)
	held.Store(false)
	b.wait(t, name, func(e *agentv1.Eval) bool { return e.GetState() == agentv1.EvalState_EVAL_STATE_SUCCEEDED })
}

// TestACancelDoesNotWaitForARunThatCannotBeDriven has a run of a later version among those of an evaluation.
func TestACancelDoesNotWaitForARunThatCannotBeDriven(t *testing.T) {
	t.Parallel()
	b := start(t, func(string, int, int) *agentv1.Run { return working() })
	state, err := b.engine.Create(t.Context(), "default", spec(3), "", false)
	require.NoError(t, err)
	name := state.Eval.GetName()
	b.wait(t, name, func(e *agentv1.Eval) bool { return e.GetProgress().GetRunning() == 3 })
	b.runs.mu.Lock()
	for run := range b.runs.byName {
		b.runs.away, b.runs.stuck = run, run
		break
	}
	b.runs.mu.Unlock()
	ctx, cancel := context.WithTimeout(t.Context(), waittest.Bound)
	defer cancel()
	s, err := b.engine.Cancel(ctx, name, "", "enough")
	require.NoError(t, err)
	assert.EqualValues(t, 3, s.Eval.GetProgress().GetCancelled())
}

// TestALaterVersionsEvaluationIsLeftAlone has a critical event that the fold does not know, and a command that the
// driver does not.
func TestALaterVersionsEvaluationIsLeftAlone(t *testing.T) {
	t.Parallel()
	t.Run("event", func(t *testing.T) {
		t.Parallel()
		for _, e := range []*agentv1.Event{{}, {Kind: &agentv1.Event_Branched{Branched: &agentv1.Branched{}}}} {
			s := &eval.State{}
			s.Apply(&agentv1.Event{Seq: 1, Critical: true, Kind: &agentv1.Event_EvalCreated{EvalCreated: &agentv1.EvalCreated{}}})
			s.Apply(&agentv1.Event{Seq: 2, Kind: e.GetKind()})
			assert.False(t, s.TooNew)
			s.Apply(&agentv1.Event{Seq: 3, Kind: e.GetKind(), Critical: true})
			assert.True(t, s.TooNew)
		}
		b := start(t, func(string, int, int) *agentv1.Run { return working() })
		state, err := b.engine.Create(t.Context(), "default", spec(3), "", false)
		require.NoError(t, err)
		name := state.Eval.GetName()
		b.wait(t, name, func(e *agentv1.Eval) bool { return e.GetProgress().GetRunning() == 3 })
		b.engine.Close()
		head, err := b.journals.Open(t.Context(), name)
		require.NoError(t, err)
		later := &agentv1.Event{Seq: head.Seq + 1, Critical: true, Kind: &agentv1.Event_Branched{Branched: &agentv1.Branched{}}}
		require.NoError(t, b.journals.Append(t.Context(), journal.Append{Head: head, Entries: []journal.Entry{{Event: later}}}))
		head.Seq++
		b.engine = b.newEngine()
		b.engine.Adopt(head)
		require.Eventually(t, func() bool { return len(b.engine.Waits(name)) == 1 }, waittest.Bound, 10*time.Millisecond, "the evaluation says that it waits")
		assert.Equal(t, agentv1.WaitReason_WAIT_REASON_VERSION, b.engine.Waits(name)[0].GetReason())
		assert.Contains(t, b.engine.Refs(), head.Ref, "nobody takes it up again")
		now, err := b.journals.Open(t.Context(), name)
		require.NoError(t, err)
		assert.Equal(t, head.Seq, now.Seq, "nothing is appended")
	})
	t.Run("command", func(t *testing.T) {
		t.Parallel()
		b := start(t, func(string, int, int) *agentv1.Run { return working() })
		state, err := b.engine.Create(t.Context(), "default", spec(3), "", false)
		require.NoError(t, err)
		name := state.Eval.GetName()
		b.wait(t, name, func(e *agentv1.Eval) bool { return e.GetProgress().GetRunning() == 3 })
		for _, body := range []string{`{"type": "rewind"}`, `from a later version`} {
			require.NoError(t, b.journals.Post(t.Context(), name, journal.Command{ID: "later " + body[:1], Body: []byte(body)}))
		}
		_, err = b.engine.Update(t.Context(), name, eval.Update{Tags: &[]string{"x"}}, "wakes the driver", "")
		require.NoError(t, err)
		require.Eventually(t, func() bool { return len(b.engine.Waits(name)) == 1 }, waittest.Bound, 10*time.Millisecond, "the evaluation says that it waits")
		assert.Equal(t, agentv1.WaitReason_WAIT_REASON_VERSION, b.engine.Waits(name)[0].GetReason())
		head, err := b.journals.Open(t.Context(), name)
		require.NoError(t, err)
		pending, err := b.journals.Pending(t.Context(), head.Ref)
		require.NoError(t, err)
		require.Len(t, pending, 2)
		assert.True(t, strings.HasPrefix(pending[0].ID, "later"))
		ctx, cancel := context.WithTimeout(t.Context(), waittest.Bound)
		defer cancel()
		s, err := b.engine.Cancel(ctx, name, "", "enough")
		require.NoError(t, err)
		assert.Equal(t, agentv1.EvalState_EVAL_STATE_CANCELLED, s.Eval.GetState())
	})
}
