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
	"github.com/evalfleet/evalfleet/services/agentorch/internal/eval"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/journal"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score/metric"
)

// blind fails to read journals of evaluations while it is away.
type blind struct {
	journal.Store
	away atomic.Bool
}

func (b *blind) Read(ctx context.Context, ref journal.Ref, r journal.Range) ([]*agentv1.Event, error) {
	if b.away.Load() {
		return nil, errors.New("the disk gives nonsense")
	}
	return b.Store.Read(ctx, ref, r)
}

// TestAnEvaluationThatCannotGoOnSaysSo makes a dependency of an evaluation unreachable when a server takes it up. The
// evaluation shows that it waits, and then either continues when the dependency is reachable again or is cancelled
// without it.
func TestAnEvaluationThatCannotGoOnSaysSo(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		lose, restore func(*bench)
		// readable is set if a cancel ends the evaluation in the meantime.
		readable bool
	}{
		"its samples are away": {
			func(b *bench) { b.blobs.lost.Store(true) }, func(b *bench) { b.blobs.lost.Store(false) }, true,
		},
		"its scorer is not known": {
			func(b *bench) { b.judges = &eval.Judges{Scorers: score.NewRegistry(), Metrics: metric.NewRegistry()} }, nil, true,
		},
		"its journal cannot be read": {
			func(b *bench) {
				store := &blind{}
				store.away.Store(true)
				b.wrap = func(s journal.Store) journal.Store { store.Store = s; return store }
				b.restore = func() { store.away.Store(false) }
			}, func(b *bench) { b.restore() }, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, cancel := range []bool{false, true} {
				if cancel && !tt.readable || !cancel && tt.restore == nil {
					continue
				}
				b := start(t, func(string, int, int) *agentv1.Run { return working() })
				made, err := b.engine.Create(t.Context(), "default", spec(5), "", false)
				require.NoError(t, err)
				name := made.Eval.GetName()
				b.wait(t, name, func(e *agentv1.Eval) bool { return e.GetProgress().GetRunning() == 3 })
				b.engine.Close()
				tt.lose(b)
				b.patience = time.Millisecond
				b.engine = b.newEngine()
				head, err := b.journals.Open(t.Context(), name)
				require.NoError(t, err)
				go b.engine.Adopt(head)
				require.Eventually(t, func() bool { return len(b.engine.Waits(name)) == 1 }, waittest.Bound, 10*time.Millisecond, "the evaluation says that it waits")
				wait := b.engine.Waits(name)[0]
				assert.Equal(t, agentv1.WaitReason_WAIT_REASON_LOADING, wait.GetReason())
				assert.NotEmpty(t, wait.GetMessage())
				assert.True(t, wait.GetSince().IsValid())
				if cancel {
					_, err := b.engine.Cancel(waittest.Context(t), name, "", "enough")
					require.NoError(t, err)
					end := b.ended(t, name)
					assert.Equal(t, agentv1.EvalState_EVAL_STATE_CANCELLED, end.Eval.GetState())
					assert.EqualValues(t, 3, end.Eval.GetProgress().GetCancelled())
					continue
				}
				tt.restore(b)
				b.runs.mu.Lock()
				for _, run := range b.runs.byName {
					at, err := b.journals.Open(t.Context(), run.GetName())
					require.NoError(t, err)
					run.State = agentv1.RunState_RUN_STATE_SUCCEEDED
					require.NoError(t, b.runs.end(t.Context(), at, run))
				}
				b.runs.mu.Unlock()
				b.wait(t, name, func(e *agentv1.Eval) bool {
					return e.GetProgress().GetSucceeded() == 3 && e.GetProgress().GetRunning() == 2
				})
				// The ends are durable before the turn of the driver is over.
				require.Eventually(t, func() bool { return len(b.engine.Waits(name)) == 0 }, waittest.Bound, 10*time.Millisecond, "it waits no more")
			}
		})
	}
}

// TestACancelIsAcknowledgedOnceItIsDurable has nothing that drives the evaluation: its next owner finds the cancel.
func TestACancelIsAcknowledgedOnceItIsDurable(t *testing.T) {
	t.Parallel()
	b := start(t, func(string, int, int) *agentv1.Run { return working() })
	made, err := b.engine.Create(t.Context(), "default", spec(5), "", false)
	require.NoError(t, err)
	name := made.Eval.GetName()
	b.wait(t, name, func(e *agentv1.Eval) bool { return e.GetProgress().GetRunning() == 3 })
	b.patience = time.Millisecond
	b.again(t, nil)
	answer, err := b.engine.Cancel(waittest.Context(t), name, "", "enough")
	require.NoError(t, err)
	assert.Equal(t, "cancelling: enough", answer.Eval.GetStateReason())
	head, err := b.journals.Open(t.Context(), name)
	require.NoError(t, err)
	b.engine.Adopt(head)
	assert.EqualValues(t, 3, b.ended(t, name).Eval.GetProgress().GetCancelled())
}

// TestNoRunBeginsAfterACancelIsAcknowledged has the driver busy with a run while the cancel comes: the answer waits
// until the driver has taken the cancel, however long that takes.
func TestNoRunBeginsAfterACancelIsAcknowledged(t *testing.T) {
	t.Parallel()
	b := start(t, func(string, int, int) *agentv1.Run { return working() })
	b.patience = time.Millisecond
	b.again(t, nil)
	busy, release := make(chan struct{}, 5), make(chan struct{})
	b.runs.making = func(string) { busy <- struct{}{}; waittest.Hold(t, release) }
	made, err := b.engine.Create(t.Context(), "default", spec(5), "", false)
	require.NoError(t, err)
	waittest.For(t, busy, "the first run")
	answered := make(chan error, 1)
	go func() {
		_, err := b.engine.Cancel(waittest.Context(t), made.Eval.GetName(), "", "enough")
		answered <- err
	}()
	select {
	case err := <-answered:
		require.FailNow(t, "the cancel is acknowledged while a driver has yet to take it", "%v", err)
	case <-time.After(100 * time.Millisecond):
	}
	close(release)
	require.NoError(t, waittest.For(t, answered, "the answer of the cancel"))
	b.runs.mu.Lock()
	begun := len(b.runs.byName)
	b.runs.mu.Unlock()
	b.ended(t, made.Eval.GetName())
	assert.Len(t, b.runs.byName, begun)
}

// TestACancelWaitsForTheReplicaThatDrives has another replica own the evaluation: it may begin a run until it has taken
// the cancel.
func TestACancelWaitsForTheReplicaThatDrives(t *testing.T) {
	t.Parallel()
	b := start(t, func(string, int, int) *agentv1.Run { return working() })
	made, err := b.engine.Create(t.Context(), "default", spec(5), "", false)
	require.NoError(t, err)
	name := made.Eval.GetName()
	b.wait(t, name, func(e *agentv1.Eval) bool { return e.GetProgress().GetRunning() == 3 })
	b.patience = time.Millisecond
	b.again(t, nil)
	_, err = b.journals.Claim(t.Context(), journal.Claim{Replica: "other", Limit: 100})
	require.NoError(t, err)
	answered := make(chan error, 1)
	go func() {
		_, err := b.engine.Cancel(waittest.Context(t), name, "", "enough")
		answered <- err
	}()
	select {
	case err := <-answered:
		require.FailNow(t, "the cancel is acknowledged before the other replica has taken it", "%v", err)
	case <-time.After(100 * time.Millisecond):
	}
	b.replica = "other"
	other := b.newEngine()
	defer other.Close()
	head, err := b.journals.Open(t.Context(), name)
	require.NoError(t, err)
	other.Adopt(head)
	require.NoError(t, waittest.For(t, answered, "the answer of the cancel"))
	assert.EqualValues(t, 3, b.ended(t, name).Eval.GetProgress().GetCancelled())
}
